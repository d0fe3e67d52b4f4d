"""`trax settings …`: what operators may change while servers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from trax.bounds import load_json
from trax.cli.operating import AsJson, CodeOf, DatabaseUrl, Reason, Yes, confirm, misuse, operate
from trax.cli.showing import in_line, say, show_json, show_rows
from trax.errors import InvalidSetting
from trax.host.live_settings import check_known
from trax.settings import Settings
from trax.settings.kinds import Effective

if TYPE_CHECKING:
    from trax.host.app import Trax

settings = App(name="settings", help="What operators may change while servers run.")


@settings.command
def get(
    name: str | None = None,
    /,
    *,
    app: CodeOf = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show one setting, or all of them and who says so.

    Without --app, what the app's code says is not known here: then it is what operators have edited, over
    this machine's environment and the defaults.
    """

    async def read(operated: Trax) -> dict[str, dict[str, Any]]:
        names = _editable() if name is None else [_checked(name)]
        found = await operated.settings.get()
        origins = await operated.settings.origins()
        values = found.spelled(names)
        return {each: {"value": values[each], "origin": origins[each]} for each in names}

    found = operate(database_url, read, app=app)
    if as_json:
        show_json(found)
    elif name is not None:
        say(in_line(found[name]["value"]))
    else:
        rows = [[each, in_line(said["value"]), said["origin"]] for each, said in found.items()]
        show_rows(["name", "value", "origin"], rows)


@settings.command(name="set")
def set_(
    *changes: Annotated[str, Parameter(name="NAME=VALUE")],
    app: CodeOf = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Change settings on every server, all of these or none; `NAME=none` means no limit.

    For example: trax settings set max_active_jobs=50 default_job_timeout=90
    """
    wanted = dict(map(_change, changes))
    if not wanted:
        raise misuse("Nothing to set: say NAME=VALUE.", "settings", "set")
    operate(database_url, lambda operated: operated.settings.update(**wanted), app=app, reason=reason)
    say(f"set: {', '.join(wanted)}")


@settings.command
def reset(
    *names: str,
    yes: Yes = False,
    app: CodeOf = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Undo operators' edits of these settings, or of all: what code and environment say counts again."""
    if not names and not confirm("Reset every setting", yes=yes, command=("settings", "reset")):
        return 1
    operate(database_url, lambda operated: operated.settings.reset(*names), app=app, reason=reason)
    say(f"reset: {', '.join(names) or 'all'}")
    return 0


def _editable() -> list[str]:
    """Those a process reads once are its own affair, and one of them may hold a password."""
    return [name for name in sorted(Settings.model_fields) if not Settings.is_fixed(name)]


def _checked(name: str) -> str:
    check_known(name)
    if Settings.is_fixed(name):
        raise InvalidSetting(f"setting {name!r} is {Effective.FIXED}; operators have no say in it")
    return name


def _change(given: str) -> tuple[str, Any]:
    name, equals, text = given.partition("=")
    if not equals:
        raise misuse(f"{given!r} changes nothing: say NAME=VALUE.", "settings", "set")
    if text.lower() == "none":
        return name, None
    try:
        return name, load_json(text)
    except ValueError:
        return name, text  # such as PT90S
