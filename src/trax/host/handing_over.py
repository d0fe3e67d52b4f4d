"""Handing runs to one submitter: take them from the outbox, call it, write down what it answered."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.admin.hand_off import Answers, note_answers
from trax.dispatch.calling import Call
from trax.dispatch.submit import Answer, Refused, Submission, Submitter, batch_size, timeout
from trax.errors import SecretUnreadable
from trax.host.loop import Loop
from trax.store import hand_off
from trax.store.hand_off import FailedHandOff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.store import Connection, Store
    from trax.store.hand_off import Taken

logger = logging.getLogger(__name__)

GRACE: Final = timedelta(seconds=30)
"""How much longer a run stays ours than its call may take: the answer is still to be written down."""


class HandingOver:
    """The calls of one submitter that are under way, so many at once.

    Each submitter has its own: one that is slow, or hangs, holds up no other and no worker.
    """

    def __init__(
        self, parts: Parts, store: Store, submitter: Submitter, on_ended: Callable[[], None] = lambda: None
    ) -> None:
        self._parts = parts
        self._store = store
        self._submitter = submitter
        self._on_ended = on_ended
        self._under_way: set[asyncio.Task[None]] = set()

    async def turn(self) -> int:
        """Begin as many calls as may be under way at once; returns how many runs they are about."""
        free = self._parts.settings.max_concurrent_dispatch - len(self._under_way)
        if free <= 0:
            return 0
        size = batch_size(self._submitter)
        taken, until = await self._store.call(self._take, free * size)
        for start in range(0, len(taken), size):
            self._begin(taken[start : start + size], until)
        return len(taken)

    async def drain(self, seconds: float | None = None) -> None:
        """Wait for the calls under way. One that takes too long is left; its runs are handed over again."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _begin(self, batch: Sequence[Taken], until: datetime) -> None:
        task = asyncio.create_task(
            self._carry(batch, until), name=f"trax hand over to {self._submitter.name}"
        )
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._on_ended()

    async def _carry(self, batch: Sequence[Taken], until: datetime) -> None:
        answers = {run.metadata_id: self._poison(run) for run in batch}
        fit = [Submission(**run._asdict()) for run in batch if answers[run.metadata_id] is None]
        call = Call(self._submitter, fit) if fit else None
        if call is not None:
            said = await call.answers(self._seconds)
            answers |= {one.metadata_id: answer for one, answer in zip(fit, said, strict=True)}
        try:
            await self._store.call(self._note, answers, until)
        except Exception:
            logger.exception(
                "submitter %r: its answers could not be written; runs %s are handed over again",
                self._submitter.name,
                list(answers),
                extra={"submitter": self._submitter.name},
            )
        if call is not None:
            await call.ended()

    @property
    def _seconds(self) -> float | None:
        allowed = timeout(self._submitter, self._parts.settings.hand_off_timeout)
        return None if allowed is None else allowed.total_seconds()

    def _poison(self, run: Taken) -> Answer:
        """An input that its train refuses is not sent; a train we do not know is the receiver's to judge."""
        if run.train not in self._parts.trains:
            return None
        try:
            codec = self._parts.parameters.of_input(self._parts.trains.get(run.train))
            codec.decode(run.input or "null")
        except SecretUnreadable:
            return None  # its key is needed where it runs, and perhaps only there
        except Exception as refused:  # noqa: BLE001 - validators are code of the user's
            return refused
        return None

    def _take(self, connection: Connection, most: int) -> tuple[list[Taken], datetime]:
        now = self._store.now(connection)
        until = now + (timeout(self._submitter, self._parts.settings.hand_off_timeout) or GRACE) + GRACE
        name = self._submitter.name
        return hand_off.take(connection, submitter=name, most=most, until=until, now=now), until

    def _note(self, connection: Connection, answers: dict[int, Answer], until: datetime) -> None:
        failed = [_failed(one, answer) for one, answer in answers.items() if answer is not None]
        for one in failed:
            name = self._submitter.name
            extra = {"metadata_id": one.metadata_id, "submitter": name}
            logger.warning(
                "run %s was not handed to %r: %s", one.metadata_id, name, one.failure_reason, extra=extra
            )
        accepted = [one for one, answer in answers.items() if answer is None]
        said = Answers(accepted=accepted, failed=failed, until=until)
        note_answers(connection, said, self._parts.settings, now=self._store.now(connection))


def handing_over(parts: Parts, store: Store, submitter: Submitter) -> tuple[HandingOver, Loop]:
    """The duty of handing over to one submitter, and the loop that does it. A call that ends wakes it."""

    async def turn() -> None:
        await handing.turn()

    def poll_seconds() -> float:
        return parts.settings.job_dispatcher_polling_interval.total_seconds()

    loop = Loop(f"hand_over to {submitter.name}", turn, poll_seconds=poll_seconds)
    handing = HandingOver(parts, store, submitter, on_ended=loop.wake)
    return handing, loop


def _failed(metadata_id: int, answer: Refused | Exception) -> FailedHandOff:
    if isinstance(answer, Refused):
        return FailedHandOff(metadata_id, Refused.__name__, answer.reason)
    trace = "".join(traceback.format_exception(answer))
    return FailedHandOff(metadata_id, type(answer).__name__, _message(answer), trace)


def _message(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not keep the failure from being written
        return f"<{type(error).__name__} without a readable message>"
