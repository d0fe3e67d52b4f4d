"""`trax sessions …`: who is signed in to the dashboard, signing them out, and links to sign in."""

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
    misuse,
    operate,
)
from trax.cli.showing import say, show_list

LISTED: Final = ("id", "user", "role", "means", "address", "created_at", "last_seen_at", "expires_at")
ADDRESS: Final = "http://127.0.0.1:8080"
COMMAND: Final = ("sessions", "end")

OfUser = Annotated[str | None, Parameter("--user", help="Only those of this user.")]

sessions = App(name="sessions", help="Who is signed in to the dashboard; links to sign in.")


@sessions.command(name="list")
def list_(
    *,
    user: OfUser = None,
    before: Before = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the browsers that are signed in, newest first."""
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
    """Sign out these browsers, one user everywhere, or everybody.

    A server notices within a few seconds.
    """
    if sum((bool(ids), user is not None, everything)) != 1:
        raise misuse("Say which: IDS, --user or --all.", *COMMAND)
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
    url: Annotated[str, Parameter(help="Where the dashboard is served.")] = ADDRESS,
    database_url: DatabaseUrl = None,
) -> None:
    """Print a link that signs one browser in as operator `local`.

    It works once, within an hour, at a dashboard of this database for which no access is configured.
    """
    token = operate(database_url, lambda app: app.sessions.create_link())
    say(f"{url.rstrip('/')}/login?token={token}")
