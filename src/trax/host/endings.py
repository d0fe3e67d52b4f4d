"""Endings on their way into the database: in batches, kept when it is away, and told to the hooks after."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from trax.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trax.host.job import Finished, JobRunner

logger = logging.getLogger(__name__)


class Endings:
    """Writes what has ended. `put_back` takes what could not be written, to be collected another time."""

    def __init__(
        self,
        write: Callable[[Sequence[Finished]], Awaitable[list[Finished]]],
        put_back: Callable[[Sequence[Finished]], None],
        runner: Callable[[], JobRunner],
    ) -> None:
        self._write = write
        self._put_back = put_back
        self._runner = runner
        self._telling: set[asyncio.Task[None]] = set()

    async def write(self, finished: Sequence[Finished]) -> int:
        """Write them all at once, and begin to tell the hooks; returns how many were still ours to write."""
        written = await self._written(finished)
        heard = [one for one in written if self._runner().is_heard(one)]
        if heard:
            telling = asyncio.create_task(self._tell(heard), name="trax hooks")
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
        return len(written)

    async def told(self) -> None:
        """Wait until every hook has been told."""
        while self._telling:
            await asyncio.wait(self._telling)

    async def _tell(self, finished: Sequence[Finished]) -> None:
        """In a task of its own: a hook may take its time, and no other ending waits for that."""
        for one in finished:
            await self._runner().tell(one)

    async def _written(self, finished: Sequence[Finished]) -> list[Finished]:
        try:
            return await self._write(finished)
        except (StoreUnavailable, asyncio.CancelledError):
            self._put_back(finished)
            raise
        except Exception:
            logger.exception("%s endings could not be written; each is now written alone", len(finished))
            return await self._written_singly(finished)

    async def _written_singly(self, finished: Sequence[Finished]) -> list[Finished]:
        """Find the ending that spoils the batch. Its run fails, with the reason; the others are written."""
        written: list[Finished] = []
        for number, one in enumerate(finished):
            try:
                written += await self._written_somehow(one)
            except (StoreUnavailable, asyncio.CancelledError):
                self._put_back(finished[number:])
                raise
            except Exception:
                logger.exception("run %s: its end is lost", one.ended.ending.metadata_id)
        return written

    async def _written_somehow(self, one: Finished) -> list[Finished]:
        try:
            return await self._write([one])
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - goes into the record
            return await self._write([self._runner().unwritable(one, error)])
