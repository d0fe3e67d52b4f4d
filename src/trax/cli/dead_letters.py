"""`trax dead-letters …`: list, requeue and acknowledge dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from trax.cli.lists import add_list, parameter_of
from trax.cli.operators import (
    PAGE_RANGE,
    AsJson,
    DatabaseUrl,
    Everything,
    Id,
    Ids,
    Limit,
    Reason,
    Yes,
    confirm,
    operate,
    usage_error,
)
from trax.cli.output import say, show_json, show_one, show_rows, single_line
from trax.records.nouns import DEAD_LETTERS

if TYPE_CHECKING:
    from trax.app.app import Trax
    from trax.records import DeadLetter

Fingerprint = Annotated[str | None, parameter_of(DEAD_LETTERS.filters_by_name["fingerprint"])]

dead_letters = App(name="dead-letters", help="List, requeue and acknowledge jobs whose last attempt failed.")


add_list(dead_letters, DEAD_LETTERS)


@dead_letters.command
def show(dead_letter_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one dead letter with its input."""
    show_one(operate(database_url, lambda app: app.dead_letters.get(dead_letter_id)), as_json=as_json)


@dead_letters.command
def groups(*, limit: Limit = 50, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Count waiting dead letters by failure, the most frequent first."""
    found = operate(database_url, lambda app: app.dead_letters.groups(limit=limit))
    if as_json:
        show_json(found)
        return
    rows = (
        [group.fingerprint, str(group.count), group.train, single_line(_failure(group.sample))]
        for group in found
    )
    show_rows(["fingerprint", "count", "train", "latest failure"], rows)


@dead_letters.command
def requeue(
    *ids: Ids,
    note: Annotated[str | None, Parameter(help="A note, kept with the dead letter.")] = None,
    fingerprint: Fingerprint = None,
    limit: Annotated[
        int | None,
        Parameter(help="With --fingerprint: only this many, the oldest first.", validator=PAGE_RANGE),
    ] = None,
    everything: Everything = False,
    yes: Yes = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Enqueue dead letters again, each with its own input."""
    _check(ids, fingerprint, "requeue", everything=everything)
    if everything and not confirm(
        "Requeue every waiting dead letter", yes=yes, command=("dead-letters", "requeue")
    ):
        return 1

    async def requeue(app: Trax) -> int:
        if everything:
            return await app.dead_letters.requeue_all(note)
        return await app.dead_letters.requeue(ids or None, note, fingerprint=fingerprint, limit=limit)

    return _report_count("requeued", operate(database_url, requeue, reason=reason), ids)


@dead_letters.command
def ack(
    *ids: Ids,
    note: Annotated[str, Parameter(help="Why the job need not run again.")],
    fingerprint: Fingerprint = None,
    everything: Everything = False,
    yes: Yes = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Mark dead letters as resolved without running them again."""
    _check(ids, fingerprint, "ack", everything=everything)
    if everything and not confirm(
        "Acknowledge every waiting dead letter", yes=yes, command=("dead-letters", "ack")
    ):
        return 1

    async def acknowledge(app: Trax) -> int:
        if everything:
            return await app.dead_letters.acknowledge_all(note)
        return await app.dead_letters.acknowledge(ids or None, note, fingerprint=fingerprint)

    return _report_count("acknowledged", operate(database_url, acknowledge, reason=reason), ids)


def _check(ids: tuple[int, ...], fingerprint: str | None, verb: str, *, everything: bool) -> None:
    if sum((bool(ids), fingerprint is not None, everything)) != 1:
        raise usage_error("No dead letters selected: give ids, --fingerprint or --all.", "dead-letters", verb)


def _failure(letter: DeadLetter) -> str:
    """The last failure; the reason of the letter if the job never ran."""
    if letter.failure_exception is None:
        return letter.reason
    return f"{letter.failure_exception}: {letter.failure_reason}"


def _report_count(verb: str, count: int, ids: tuple[int, ...]) -> int:
    """Print the count; exit code 1 if some ids do not exist or were resolved before."""
    if not ids:
        say(f"{verb}: {count}")
        return 0
    say(f"{verb}: {count} of {len(set(ids))}")
    return 0 if count == len(set(ids)) else 1
