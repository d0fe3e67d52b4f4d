"""`trax groups …`: list and change groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from trax.cli.lists import add_list
from trax.cli.operators import (
    AsJson,
    DatabaseUrl,
    GroupName,
    Reason,
    Yes,
    confirm,
    operate,
    report_cancelled,
    usage_error,
)
from trax.cli.output import say, show_one
from trax.records.nouns import GROUPS

if TYPE_CHECKING:
    from trax.app.app import Trax

groups = App(name="groups", help="List and change groups: limits and priorities.")


add_list(groups, GROUPS)


@groups.command
def show(name: GroupName, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one group."""
    show_one(operate(database_url, lambda app: app.groups.get(name)), as_json=as_json)


@groups.command(name="set")
def set_(
    name: GroupName,
    /,
    *,
    max_active_jobs: Annotated[
        int | Literal["none"] | None, Parameter(help="How many of its jobs run at once; `none`: no limit.")
    ] = None,
    priority: Annotated[int | None, Parameter(help="0 to 31; the highest runs first.")] = None,
    enabled: Annotated[bool | None, Parameter(negative="--disabled", help="Whether its jobs run.")] = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change a group on every server; omitted options stay unchanged."""
    options = {"max_active_jobs": max_active_jobs, "priority": priority, "enabled": enabled}
    changes: dict[str, Any] = {
        word: None if value == "none" else value for word, value in options.items() if value is not None
    }
    if not changes:
        raise usage_error(
            "Nothing to set: give --max-active-jobs, --priority, --enabled or --disabled.", "groups", "set"
        )
    show_one(
        operate(database_url, lambda app: app.groups.update(name, **changes), reason=reason), as_json=as_json
    )


@groups.command
def trigger(name: GroupName, /, *, reason: Reason = None, database_url: DatabaseUrl = None) -> None:
    """Enqueue the enabled manifests of a group that depend on no other."""

    async def trigger(app: Trax) -> int:
        await app.groups.get(name)
        return await app.groups.trigger(name)

    say(f"queued: {operate(database_url, trigger, reason=reason)}")


@groups.command
def cancel(
    name: GroupName,
    /,
    *,
    yes: Yes = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> int:
    """Request cancellation of the active runs of a group."""
    if not confirm(f"Cancel every active run of group {name!r}", yes=yes, command=("groups", "cancel")):
        return 1
    run_ids = operate(database_url, lambda app: app.groups.cancel(name), reason=reason)
    return report_cancelled("cancellation requested", run_ids, None, as_json=as_json)
