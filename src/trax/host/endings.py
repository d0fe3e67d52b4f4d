"""Endings on their way into the database: in batches, kept while it takes none, and told to the hooks after.

Whatever keeps the database from writing, a fail-over, a full disk, a lock, a missing table: an ending is put
back and tried again, until it is written as what it was. Only one whose content is refused becomes a failure.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from trax.errors import StoreError
from trax.store import metadata
from trax.store.faults import Fault, fault_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trax.host.job import Finished, JobRunner
    from trax.store import Connection

logger = logging.getLogger(__name__)


class Endings:
    """Writes what has ended. `put_back` takes what could not be written, to be collected another time.

    `written_before` tells what an earlier try has written whose answer was lost with the connection.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Finished]], Awaitable[list[Finished]]],
        written_before: Callable[[Sequence[Finished]], Awaitable[set[int]]],
        put_back: Callable[[Sequence[Finished]], None],
        runner: Callable[[], JobRunner],
    ) -> None:
        self._write = write
        self._written_before = written_before
        self._put_back = put_back
        self._runner = runner
        self._telling: set[asyncio.Task[None]] = set()
        self._writing: list[Sequence[Finished]] = []
        self.lost: set[int] = set()
        """Runs whose end no database takes. They are not run again before this worker has ended."""

    @property
    def under_way(self) -> list[Finished]:
        """What is being written at this moment."""
        return [one for batch in self._writing for one in batch]

    async def write(self, finished: Sequence[Finished]) -> int:
        """Write them all at once, and begin to tell the hooks; returns how many were still ours to write."""
        self._writing.append(finished)
        try:
            written, kept = await self._written(finished)
            self._begin_telling(written)
            if len(written) == len(finished):
                return len(written)
            before = await self._accounted([one for one in finished if _id(one) not in kept], written)
            self._begin_telling(before)
            if kept:
                raise next(iter(kept.values()))
            return len(written) + len(before)
        finally:
            self._writing.remove(finished)

    async def told(self) -> None:
        """Wait until every hook has been told."""
        while self._telling:
            await asyncio.wait(self._telling)

    def _begin_telling(self, written: Sequence[Finished]) -> None:
        runner = self._runner()
        heard = [one for one in written if one.told is not None]
        if heard or (written and runner.is_observed):
            telling = asyncio.create_task(self._tell(written, heard), name="trax hooks")
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def _tell(self, written: Sequence[Finished], heard: Sequence[Finished]) -> None:
        """In a task of its own: a hook may take its time, and no other ending waits for that."""
        await self._runner().observe(written)
        for one in heard:
            await self._runner().tell(one)

    async def _written(self, finished: Sequence[Finished]) -> tuple[list[Finished], dict[int, Exception]]:
        try:
            return await self._write(finished), {}
        except asyncio.CancelledError:
            self._put_back(finished)
            raise
        except Exception as error:
            if not _may_concern_one(error):
                self._put_back(finished)
                raise
            logger.exception("%s endings could not be written; each is now written alone", len(finished))
            return await self._written_singly(finished)

    async def _accounted(self, finished: Sequence[Finished], written: Sequence[Finished]) -> list[Finished]:
        """Those that were written all the same, at an earlier try. The others were taken from this worker."""
        accounted = {*map(_id, written), *self.lost}
        refused = [one for one in finished if _id(one) not in accounted]
        try:
            before = await self._written_before(refused)
        except BaseException:
            self._put_back(refused)
            raise
        for one in refused:
            if _id(one) not in before:
                logger.warning(
                    "run %s ended as %s too late: it was taken from this worker, its result is not recorded",
                    _id(one),
                    one.ended.ending.state,
                    extra=_extra(one),
                )
                _end_span(one)
        return [one for one in refused if _id(one) in before]

    async def _written_singly(
        self, finished: Sequence[Finished]
    ) -> tuple[list[Finished], dict[int, Exception]]:
        """Find the ending that spoils the batch. Its run fails, with the reason; the others are written.

        What cannot be written for another reason is put back, and told with the reason: the others still are.
        """
        written: list[Finished] = []
        kept: dict[int, Exception] = {}
        for number, one in enumerate(finished):
            try:
                written += await self._written_somehow(one)
            except asyncio.CancelledError:
                self._put_back(finished[number:])
                raise
            except Exception as error:
                fault = fault_of(error)
                if fault is Fault.CONTENT:
                    logger.exception("run %s: its end is lost", _id(one), extra=_extra(one))
                    self.lost.add(_id(one))
                    _end_span(one)
                    continue
                rest = finished[number:] if fault is Fault.TRANSIENT else [one]
                self._put_back(rest)
                kept |= dict.fromkeys(map(_id, rest), error)
                if fault is Fault.TRANSIENT:
                    break
        return written, kept

    async def _written_somehow(self, one: Finished) -> list[Finished]:
        try:
            return await self._write([one])
        except Exception as error:
            if fault_of(error) is not Fault.CONTENT:
                raise
            return await self._write([self._runner().unwritable(one, error)])


def _may_concern_one(error: Exception) -> bool:
    """Whether the others might be written without the one that was refused."""
    is_unknown = type(error) is StoreError  # of no class that says what is wrong
    return is_unknown or fault_of(error) is Fault.CONTENT


def written_before(connection: Connection, finished: Sequence[Finished]) -> set[int]:
    """Which of them an earlier try has written."""
    return metadata.written_before(connection, [one.ended.ending for one in finished])


def _end_span(unwritten: Finished) -> None:
    if unwritten.span is not None:
        unwritten.span.end(None)


def _extra(finished: Finished) -> dict[str, Any]:
    """Which run it was, for a line in the log."""
    ended = finished.ended
    return {"train": finished.train, "metadata_id": ended.ending.metadata_id, "attempt": ended.attempt}


def _id(finished: Finished) -> int:
    return finished.ended.ending.metadata_id
