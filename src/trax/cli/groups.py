"""`trax groups …`: who shares a limit and a priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from trax.cli.operating import After, AsJson, DatabaseUrl, Limit, Reason, Yes, confirm, misuse, operate
from trax.cli.showing import say, show_list, show_one

if TYPE_CHECKING:
    from trax.host.app import Trax

LISTED: Final = ("name", "priority", "max_active_jobs", "enabled")

groups = App(name="groups", help="Who shares a limit and a priority.")


@groups.command(name="list")
def list_(
    *, after: After = None, limit: Limit = 50, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List groups in the order of their names."""
    found = operate(database_url, lambda app: app.groups.list(after=after, limit=limit))
    show_list(found, LISTED, as_json=as_json)


@groups.command
def show(name: str, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one group."""
    show_one(operate(database_url, lambda app: app.groups.get(name)), as_json=as_json)


@groups.command(name="set")
def set_(
    name: str,
    /,
    *,
    max_active_jobs: Annotated[
        int | Literal["none"] | None, Parameter(help="How many of its jobs at once; none: no limit.")
    ] = None,
    priority: Annotated[int | None, Parameter(help="0 to 31; the highest goes first.")] = None,
    enabled: Annotated[bool | None, Parameter(negative="--disabled", help="Whether its jobs run.")] = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change a group on every server; what is not named stays."""
    given = {"max_active_jobs": max_active_jobs, "priority": priority, "enabled": enabled}
    changes: dict[str, Any] = {
        word: None if value == "none" else value for word, value in given.items() if value is not None
    }
    if not changes:
        raise misuse(
            "Nothing to set: say --max-active-jobs, --priority, --enabled or --disabled.", "groups", "set"
        )
    show_one(
        operate(database_url, lambda app: app.groups.update(name, **changes), reason=reason), as_json=as_json
    )


@groups.command
def trigger(name: str, /, *, reason: Reason = None, database_url: DatabaseUrl = None) -> None:
    """Run each of its enabled manifests that depends on no other."""

    async def trigger(app: Trax) -> int:
        await app.groups.get(name)
        return await app.groups.trigger(name)

    say(f"queued: {operate(database_url, trigger, reason=reason)}")


@groups.command
def cancel(name: str, /, *, yes: Yes = False, reason: Reason = None, database_url: DatabaseUrl = None) -> int:
    """Ask all its runs in progress to stop."""

    async def cancel(app: Trax) -> int:
        await app.groups.get(name)
        return await app.groups.cancel(name)

    if not confirm(f"Stop every run of group {name!r}", yes=yes, command=("groups", "cancel")):
        return 1
    say(f"asked to stop: {operate(database_url, cancel, reason=reason)}")
    return 0
