"""`trax dead-letters …`: what gave up and waits for a person."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import App, Parameter

from trax.cli.operating import (
    AsJson,
    Before,
    DatabaseUrl,
    Everything,
    Id,
    Ids,
    LetterStatus,
    Limit,
    Yes,
    confirm,
    misuse,
    operate,
)
from trax.cli.showing import say, show_list, show_one

LISTED: Final = ("id", "train", "manifest", "status", "retry_count", "dead_lettered_at", "reason")

dead_letters = App(name="dead-letters", help="What gave up and waits for a person.")


@dead_letters.command(name="list")
def list_(
    *,
    status: LetterStatus = None,
    manifest: str | None = None,
    before: Before = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""
    found = operate(
        database_url,
        lambda app: app.dead_letters.list(status=status, manifest=manifest, before=before, limit=limit),
    )
    show_list(found, LISTED, as_json=as_json)


@dead_letters.command
def show(dead_letter_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one dead letter with its input."""
    show_one(operate(database_url, lambda app: app.dead_letters.get(dead_letter_id)), as_json=as_json)


@dead_letters.command
def requeue(
    *ids: Ids,
    note: Annotated[str | None, Parameter(help="What a person wants to remember.")] = None,
    everything: Everything = False,
    yes: Yes = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Queue them again, each with its own input."""
    _check(ids, "requeue", everything=everything)
    if everything:
        if not confirm("Requeue every dead letter that waits", yes=yes, command=("dead-letters", "requeue")):
            return 1
        count = operate(database_url, lambda app: app.dead_letters.requeue_all(note))
    else:
        count = operate(database_url, lambda app: app.dead_letters.requeue(ids, note))
    return _told("requeued", count, ids)


@dead_letters.command
def ack(
    *ids: Ids,
    note: Annotated[str, Parameter(help="Why there is nothing to repeat.")],
    everything: Everything = False,
    yes: Yes = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Say that they are dealt with."""
    _check(ids, "ack", everything=everything)
    if everything:
        if not confirm("Acknowledge every dead letter that waits", yes=yes, command=("dead-letters", "ack")):
            return 1
        count = operate(database_url, lambda app: app.dead_letters.acknowledge_all(note))
    else:
        count = operate(database_url, lambda app: app.dead_letters.acknowledge(ids, note))
    return _told("acknowledged", count, ids)


def _check(ids: tuple[int, ...], verb: str, *, everything: bool) -> None:
    if bool(ids) == everything:
        raise misuse("Which dead letters? Name their ids, or say --all.", "dead-letters", verb)


def _told(done: str, count: int, ids: tuple[int, ...]) -> int:
    """Fewer than were named is a failure: the others were resolved already, or do not exist."""
    if not ids:
        say(f"{done}: {count}")
        return 0
    say(f"{done}: {count} of {len(set(ids))}")
    return 0 if count == len(set(ids)) else 1
