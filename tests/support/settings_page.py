"""The page that lists every setting, made from the settings themselves."""

from __future__ import annotations

from tests.support.reference import shown

from trax.settings import PREFIX, Settings

HEAD = f"""\
# Settings

Every setting is a keyword of `Trax(…)`, an environment variable (`{PREFIX}` and the name in capitals), and,
unless the table says otherwise, something an operator can
[edit while servers run](../how-to/change-a-setting.md).

| Name | Default | Must be | An edit counts from | Meaning |
|---|---|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(_line(name) for name in Settings.model_fields)


def _line(name: str) -> str:
    field = Settings.model_fields[name]
    counts = "(no edit)" if Settings.is_fixed(name) else f"the {Settings.effective(name)}"
    bounds = Settings.bounds(name) or ""
    return f"| `{name}` | {shown(field.default)} | {bounds} | {counts} | {Settings.description(name)} |\n"
