"""The page that lists every setting, made from the settings themselves.

`python tests/support/settings_page.py` writes it to docs/reference/settings.md.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from trax.settings import PREFIX, Settings

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "settings.md"
UNITS = {
    "days": timedelta(days=1),
    "h": timedelta(hours=1),
    "min": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
HEAD = f"""\
# Settings

Every setting is a keyword of `Trax(…)`, an environment variable (`{PREFIX}` and the name in capitals), and,
unless the table says otherwise, something an operator can [edit while servers run](../settings.md).

| Name | Default | An edit counts from | Meaning |
|---|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(_line(name) for name in Settings.model_fields)


def _line(name: str) -> str:
    field = Settings.model_fields[name]
    counts = "(no edit)" if Settings.is_fixed(name) else f"the {Settings.effective(name)}"
    return f"| `{name}` | {_shown(field.default)} | {counts} | {field.description} |\n"


def _shown(value: Any) -> str:
    """A default as a person writes it."""
    if isinstance(value, timedelta):
        unit, length = next((unit, length) for unit, length in UNITS.items() if value >= length)
        return f"{value / length:g} {unit}"
    return "none" if value == () else f"`{value}`"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
