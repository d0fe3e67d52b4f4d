"""`trax sessions …`: list and end dashboard sessions, and create sign-in links."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import App, Parameter

from trax.cli.operating import (
    AsJson,
    Before,
    DatabaseUrl,
    Everything,
    Ids,
    Limit,
    Reason,
    Yes,
    confirm,
    operate,
    usage_error,
)
from trax.cli.showing import say, show_list

LISTED: Final = ("id", "user", "role", "means", "address", "created_at", "last_seen_at", "expires_at")
DEFAULT_URL: Final = "http://127.0.0.1:8080"
COMMAND: Final = ("sessions", "end")

OfUser = Annotated[str | None, Parameter("--user", help="Only sessions of this user.")]

sessions = App(name="sessions", help="List and end dashboard sessions; create sign-in links.")


@sessions.command(name="list")
def list_(
    *,
    user: OfUser = None,
    before: Before = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List dashboard sessions, newest first."""
    found = operate(database_url, lambda app: app.sessions.list(user=user, before=before, limit=limit))
    show_list(found, LISTED, as_json=as_json)


@sessions.command
def end(
    *ids: Ids,
    user: OfUser = None,
    everything: Everything = False,
    yes: Yes = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> int:
    """End dashboard sessions: by id, of one user, or all.

    Servers apply this within a few seconds.
    """
    if sum((bool(ids), user is not None, everything)) != 1:
        raise usage_error("No sessions selected: give ids, --user or --all.", *COMMAND)
    if everything and not confirm("End every session", yes=yes, command=COMMAND):
        return 1
    ended = operate(
        database_url,
        lambda app: app.sessions.end(ids) if ids else app.sessions.end_all(user=user),
        reason=reason,
    )
    say(f"ended: {len(ended)} of {len(set(ids))}" if ids else f"ended: {len(ended)}")
    return 0 if len(ended) >= len(set(ids)) else 1


@sessions.command
def link(
    *,
    url: Annotated[str, Parameter(help="The address of the dashboard.")] = DEFAULT_URL,
    database_url: DatabaseUrl = None,
) -> None:
    """Print a link that signs one browser in as operator `local`.

    It works once, within 1 h, and only if no access is configured for the dashboard.
    """
    token = operate(database_url, lambda app: app.sessions.create_link())
    say(f"{url.rstrip('/')}/login?token={token}")
