"""`trax dead-letters …`: what gave up and waits for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from trax.cli.operating import (
    A_PAGE,
    AsJson,
    Before,
    DatabaseUrl,
    Everything,
    Id,
    Ids,
    LetterStatus,
    Limit,
    Reason,
    Yes,
    confirm,
    misuse,
    operate,
)
from trax.cli.showing import in_line, say, show_json, show_list, show_one, show_rows

if TYPE_CHECKING:
    from trax.host.app import Trax
    from trax.records import DeadLetter

LISTED: Final = ("id", "train", "manifest", "status", "retry_count", "dead_lettered_at", "reason")

Fingerprint = Annotated[str | None, Parameter(help="All of one kind of failure; see `groups`.")]

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
        lambda app: app.dead_letters.list(
            status=status, manifest=manifest, before=before, limit=limit, brief=not as_json
        ),
    )
    show_list(found, LISTED, as_json=as_json)


@dead_letters.command
def show(dead_letter_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one dead letter with its input."""
    show_one(operate(database_url, lambda app: app.dead_letters.get(dead_letter_id)), as_json=as_json)


@dead_letters.command
def groups(*, limit: Limit = 50, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List what waits by kind of failure, the most frequent first."""
    found = operate(database_url, lambda app: app.dead_letters.groups(limit=limit))
    if as_json:
        show_json(found)
        return
    told = ([one.fingerprint, str(one.count), one.train, in_line(_failure(one.sample))] for one in found)
    show_rows(["fingerprint", "count", "train", "latest failure"], told)


@dead_letters.command
def requeue(
    *ids: Ids,
    note: Annotated[str | None, Parameter(help="What a person wants to remember.")] = None,
    fingerprint: Fingerprint = None,
    limit: Annotated[
        int | None, Parameter(help="Of a fingerprint, only the oldest so many.", validator=A_PAGE)
    ] = None,
    everything: Everything = False,
    yes: Yes = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Queue them again, each with its own input."""
    _check(ids, fingerprint, "requeue", everything=everything)
    if everything and not confirm(
        "Requeue every dead letter that waits", yes=yes, command=("dead-letters", "requeue")
    ):
        return 1

    async def requeue(app: Trax) -> int:
        if everything:
            return await app.dead_letters.requeue_all(note)
        return await app.dead_letters.requeue(ids or None, note, fingerprint=fingerprint, limit=limit)

    return _told("requeued", operate(database_url, requeue, reason=reason), ids)


@dead_letters.command
def ack(
    *ids: Ids,
    note: Annotated[str, Parameter(help="Why there is nothing to repeat.")],
    fingerprint: Fingerprint = None,
    everything: Everything = False,
    yes: Yes = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Say that they are dealt with."""
    _check(ids, fingerprint, "ack", everything=everything)
    if everything and not confirm(
        "Acknowledge every dead letter that waits", yes=yes, command=("dead-letters", "ack")
    ):
        return 1

    async def acknowledge(app: Trax) -> int:
        if everything:
            return await app.dead_letters.acknowledge_all(note)
        return await app.dead_letters.acknowledge(ids or None, note, fingerprint=fingerprint)

    return _told("acknowledged", operate(database_url, acknowledge, reason=reason), ids)


def _check(ids: tuple[int, ...], fingerprint: str | None, verb: str, *, everything: bool) -> None:
    if sum((bool(ids), fingerprint is not None, everything)) != 1:
        raise misuse(
            "Which dead letters? Name their ids, or a --fingerprint, or say --all.", "dead-letters", verb
        )


def _failure(letter: DeadLetter) -> str:
    """What went wrong last; what never ran has only its letter's reason."""
    if letter.failure_exception is None:
        return letter.reason
    return f"{letter.failure_exception}: {letter.failure_reason}"


def _told(done: str, count: int, ids: tuple[int, ...]) -> int:
    """Fewer than were named is a failure: the others were resolved already, or do not exist."""
    if not ids:
        say(f"{done}: {count}")
        return 0
    say(f"{done}: {count} of {len(set(ids))}")
    return 0 if count == len(set(ids)) else 1
