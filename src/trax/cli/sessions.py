"""`trax sessions …`: dashboard sessions and sign-in links; `trax secrets …`: keys of stored secrets."""

from __future__ import annotations

import sys
from typing import Annotated, Final

from cyclopts import App, Parameter

from trax.cli.lists import add_list, parameter_of
from trax.cli.operators import (
    AsJson,
    DatabaseUrl,
    Everything,
    Ids,
    Reason,
    Yes,
    acting_as_user,
    confirm,
    operate,
    usage_error,
)
from trax.cli.output import say, show_json
from trax.records.nouns import SESSIONS
from trax.store.url import choose_url

DEFAULT_URL: Final = "http://127.0.0.1:8080"
COMMAND: Final = ("sessions", "end")

OfUser = Annotated[str | None, parameter_of(SESSIONS.filters_by_name["user"])]

sessions = App(name="sessions", help="List and end dashboard sessions; create sign-in links.")


add_list(sessions, SESSIONS)


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


secrets = App(name="secrets", help="Generate and rotate the key that encrypts secret inputs.")


@secrets.command(name="generate-key")
def generate_key() -> None:
    """Print a new key for $TRAX_SECRET_KEY. It is not stored: put it into your secret store."""
    from trax.train.secrets import generate_key as new_key

    say(new_key())


@secrets.command
def rotate(*, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Re-encrypt all stored secrets with the first key of $TRAX_SECRET_KEY.

    Servers can keep running. Exits with 1 if some inputs could not be read or were locked: run it again.
    After it exits with 0, the other keys can be removed.
    """
    from trax.app.secrets import rotate as rotate_all

    with acting_as_user(reason):
        done = rotate_all(choose_url(database_url))
    is_complete = not done.unreadable and not done.busy
    if as_json:
        show_json(
            {"key": done.key_id, "rotated": done.rotated, "unreadable": done.unreadable, "busy": done.busy}
        )
        return 0 if is_complete else 1
    say(f"inputs re-encrypted with key {done.key_id}: {done.rotated}")
    for key, count in sorted(done.unreadable.items()):
        print(f"inputs that need key {key}, which is not in $TRAX_SECRET_KEY: {count}", file=sys.stderr)  # noqa: T201
    if done.busy:
        print(f"inputs skipped because they were locked: {done.busy}; run this again", file=sys.stderr)  # noqa: T201
    return 0 if is_complete else 1
