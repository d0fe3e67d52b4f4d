"""Handing runs to others: what a submitter is, what it is given, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from trax.errors import DefinitionError, shown

if TYPE_CHECKING:
    from datetime import timedelta

MOST_DOUBLINGS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run to be executed elsewhere. Whoever executes it takes it up by its `metadata_id`.

    `input` is JSON text. It is in the record as well, so a message need not carry it.
    """

    metadata_id: int
    external_id: str
    train: str
    input: str | None = None
    priority: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """A run that was not taken, and why."""

    reason: str


Answer: TypeAlias = Refused | Exception | None
"""What became of one run: None when it was taken."""


@runtime_checkable
class Submitter(Protocol):
    """Hands runs to whoever executes them: a queue, a cluster, another server.

    `submit` returns once the runs are safely handed over, with an answer for each in the order given, or with
    None when all were taken. Raising means that none was. A run may be handed over twice, after a crash say;
    it is executed once all the same, since whoever takes it up moves its record on, and only one can.

    `submit` may be async, or blocking: then each call has a thread of its own. Four more attributes count if
    they are there: `batch_size`, how many runs it wants in one call (1), `timeout`, how long a call may take
    (the setting `hand_off_timeout`; None: for ever), `opened(receiving)`, an async context manager around all
    calls that a server makes, where `receiving` is `app.receiving` of that server, and `withdraw(batch)`, a
    blocking function that is told of runs which were cancelled after they were handed over.
    """

    @property
    def name(self) -> str: ...

    def submit(
        self, batch: Sequence[Submission], /
    ) -> Awaitable[Sequence[Answer] | None] | Sequence[Answer] | None: ...


def check_submitter(submitter: Any) -> None:
    """Refuse what could not work, where it is registered."""
    if not isinstance(submitter, Submitter) or not callable(submitter.submit):
        raise DefinitionError(
            f"{shown(submitter)} is no submitter: it needs a `name` and a function `submit(batch)`"
        )
    if not isinstance(cast("Any", submitter.name), str) or not submitter.name:
        raise DefinitionError(f"the name of a submitter must be text (got {shown(submitter.name)})")
    size = batch_size(submitter)
    if not isinstance(cast("Any", size), int) or size < 1:
        raise DefinitionError(f"submitter {submitter.name!r}: batch_size must be 1 or more (got {size!r})")


def batch_size(submitter: Submitter) -> int:
    return getattr(submitter, "batch_size", 1)


def timeout(submitter: Submitter, default: timedelta) -> timedelta | None:
    return getattr(submitter, "timeout", default)


def opened(submitter: Submitter, receiving: Any) -> AbstractAsyncContextManager[Any]:
    """What a server keeps open while it hands over. It gives what is to be drained at the end, or None."""
    opening = getattr(submitter, "opened", None)
    return nullcontext() if opening is None else opening(receiving)


def one_answer_each(submitter: str, said: Any, batch: Sequence[Submission]) -> list[Answer]:
    """What was said, if it can be understood; if not, nobody knows who was taken, so nobody was."""
    if said is None:
        return [None] * len(batch)
    if not isinstance(said, Sequence) or isinstance(said, str):
        return _not_understood(submitter, f"answered {shown(said)}", batch)
    answers = list(cast("Sequence[Any]", said))
    if len(answers) != len(batch):
        return _not_understood(submitter, f"gave {len(answers)} answers", batch)
    return [_understood(submitter, one) for one in answers]


def pause_after(refusals: int, *, most: int, interval: timedelta, longest: timedelta) -> timedelta | None:
    """How long to wait after so many failed hand-offs, each time twice as long; None: give up."""
    if refusals >= most:
        return None
    return min(interval * 2 ** min(refusals, MOST_DOUBLINGS), longest)


def _understood(submitter: str, answer: Any) -> Answer:
    if answer is None or isinstance(answer, Refused | Exception):
        return answer
    return Refused(f"submitter {submitter!r} answered {shown(answer)}; it is None, Refused or an exception")


def _not_understood(submitter: str, what: str, batch: Sequence[Submission]) -> list[Answer]:
    refused = Refused(f"submitter {submitter!r} {what} for {len(batch)} runs; one answer each is wanted")
    return [refused] * len(batch)
