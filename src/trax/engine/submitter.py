"""The Submitter protocol: what a submitter gets (Submission), and what it returns for each run."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from trax.errors import DefinitionError, format_value

if TYPE_CHECKING:
    from datetime import timedelta

MAX_DOUBLINGS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run to be executed elsewhere. The receiver claims it by its `metadata_id`.

    `input` is JSON text. The record has it as well, so a message does not have to carry it.
    """

    metadata_id: int
    external_id: str
    train: str
    input: str | None = None
    priority: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """A run that was not accepted, and why."""

    reason: str


SubmissionResult: TypeAlias = Refused | Exception | None
"""The submission result of one run: None when it was accepted."""


@runtime_checkable
class Submitter(Protocol):
    """Hands runs over to their executor: a queue, a cluster, another server.

    `submit` returns once the runs are safely handed over, with a result for each run in the order given, or
    with None when all were accepted. Raising means that none was. A run may be handed over twice, for example
    after a crash; it is executed once nevertheless, since only one receiver can claim its record.

    `submit` may be async or blocking; each blocking call has its own thread. Four more attributes are
    optional: `batch_size`, the maximum number of runs in one call (default: 1); `timeout`, how long a call
    may take (default: the setting `hand_off_timeout`; None: no limit); `lifespan(receiver)`, an async context
    manager around all calls that a server makes, where `receiver` is `app.receiver` of that server; and
    `withdraw(batch)`, a blocking function that is called with runs cancelled after they were handed over.
    """

    @property
    def name(self) -> str: ...

    def submit(
        self, batch: Sequence[Submission], /
    ) -> Awaitable[Sequence[SubmissionResult] | None] | Sequence[SubmissionResult] | None: ...


def check_submitter(submitter: Any) -> None:
    """Validate a submitter when it is registered."""
    if not isinstance(submitter, Submitter) or not callable(submitter.submit):
        raise DefinitionError(
            f"{format_value(submitter)} is not a submitter: it needs a `name` and a function `submit(batch)`"
        )
    if not isinstance(cast("Any", submitter.name), str) or not submitter.name:
        raise DefinitionError(f"the name of a submitter must be text (got {format_value(submitter.name)})")
    size = batch_size_of(submitter)
    if not isinstance(cast("Any", size), int) or size < 1:
        raise DefinitionError(f"submitter {submitter.name!r}: batch_size must be 1 or more (got {size!r})")


def batch_size_of(submitter: Submitter) -> int:
    return getattr(submitter, "batch_size", 1)


def timeout_of(submitter: Submitter, default: timedelta) -> timedelta | None:
    return getattr(submitter, "timeout", default)


def open_submitter(submitter: Submitter, receiver: Any) -> AbstractAsyncContextManager[Any]:
    """The context manager around all calls of a server; it yields an object to drain at the end, or None."""
    lifespan = getattr(submitter, "lifespan", None)
    return nullcontext() if lifespan is None else lifespan(receiver)


def validate_results(submitter: str, returned: Any, batch: Sequence[Submission]) -> list[SubmissionResult]:
    """One result per run. An invalid return value refuses all: it cannot say which runs were accepted."""
    if returned is None:
        return [None] * len(batch)
    if not isinstance(returned, Sequence) or isinstance(returned, str):
        return _refuse_all(submitter, f"returned {format_value(returned)}", batch)
    results = list(cast("Sequence[Any]", returned))
    if len(results) != len(batch):
        return _refuse_all(submitter, f"returned {len(results)} results", batch)
    return [_validate_result(submitter, result) for result in results]


def pause_after(
    failures: int, *, max_attempts: int, interval: timedelta, max_pause: timedelta
) -> timedelta | None:
    """How long to wait after this many failed hand-overs, doubled each time; None: give up."""
    if failures >= max_attempts:
        return None
    return min(interval * 2 ** min(failures, MAX_DOUBLINGS), max_pause)


def _validate_result(submitter: str, result: Any) -> SubmissionResult:
    if result is None or isinstance(result, Refused | Exception):
        return result
    return Refused(
        f"submitter {submitter!r} returned {format_value(result)}; expected None, Refused or an exception"
    )


def _refuse_all(submitter: str, what: str, batch: Sequence[Submission]) -> list[SubmissionResult]:
    refused = Refused(f"submitter {submitter!r} {what} for {len(batch)} runs; expected one result per run")
    return [refused] * len(batch)
