"""`trax settings …`: read and change settings while servers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from trax.bounds import load_json
from trax.cli.operators import AppOption, AsJson, DatabaseUrl, Reason, Yes, confirm, operate, usage_error
from trax.cli.output import say, show_json, show_rows, single_line
from trax.engine.live_settings import check_known
from trax.errors import InvalidSetting
from trax.settings import Settings
from trax.settings.kinds import Effective

if TYPE_CHECKING:
    from trax.app.app import Trax

settings = App(name="settings", help="Read and change settings while servers run.")


@settings.command
def get(
    name: Annotated[str | None, Parameter(help="The setting; default: all.")] = None,
    /,
    *,
    app: AppOption = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show one setting, or all settings with the origin of each value.

    Without --app the values in the app's code are unknown: then it shows operators' edits, over this
    machine's environment and the defaults.
    """

    async def read(operated: Trax) -> dict[str, dict[str, Any]]:
        names = _editable_names() if name is None else [_validate_name(name)]
        current = await operated.settings.get()
        origins = await operated.settings.origins()
        values = current.to_json_values(names)
        return {each: {"value": values[each], "origin": origins[each]} for each in names}

    found = operate(database_url, read, app=app)
    if as_json:
        show_json(found)
    elif name is not None:
        say(single_line(found[name]["value"]))
    else:
        rows = [[each, single_line(setting["value"]), setting["origin"]] for each, setting in found.items()]
        show_rows(["name", "value", "origin"], rows)


@settings.command(name="set")
def set_(
    *changes: Annotated[str, Parameter(name="NAME=VALUE", help="A setting and its new value.")],
    app: AppOption = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Change settings on every server: all of them, or none on an error. `NAME=none` means no limit.

    For example: trax settings set max_active_jobs=50 default_job_timeout=90s
    """
    values = dict(parse_assignment(change, "settings", "set") for change in changes)
    if not values:
        raise usage_error("Nothing to set: give NAME=VALUE.", "settings", "set")
    operate(database_url, lambda operated: operated.settings.update(**values), app=app, reason=reason)
    say(f"set: {', '.join(values)}")


@settings.command
def reset(
    *names: Annotated[str, Parameter(help="The settings; default: all.")],
    yes: Yes = False,
    app: AppOption = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Remove operators' edits of these settings, or of all: code and environment apply again."""
    if not names and not confirm("Reset every setting", yes=yes, command=("settings", "reset")):
        return 1
    operate(database_url, lambda operated: operated.settings.reset(*names), app=app, reason=reason)
    say(f"reset: {', '.join(names) or 'all'}")
    return 0


def _editable_names() -> list[str]:
    """Settings that are not read once at start; one of those may hold a password."""
    return [name for name in sorted(Settings.model_fields) if not Settings.is_fixed(name)]


def _validate_name(name: str) -> str:
    check_known(name)
    if Settings.is_fixed(name):
        raise InvalidSetting(f"setting {name!r} is {Effective.FIXED}; operators cannot change it")
    return name


def parse_assignment(assignment: str, *command: str) -> tuple[str, Any]:
    """Read NAME=VALUE as an operator writes it: JSON, `none`, or text such as 90s."""
    name, equals, text = assignment.partition("=")
    if not equals:
        raise usage_error(f"Invalid change {assignment!r}: give NAME=VALUE.", *command)
    if text.lower() == "none":
        return name, None
    try:
        return name, load_json(text)
    except ValueError:
        return name, text  # such as 90s
