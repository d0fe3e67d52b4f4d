"""Open submitters when a server starts: connections, and receivers for runs whose record is kept here."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from trax.dispatch.submit import open_submitter
from trax.errors import StoreError
from trax.host.receiving import run_receiver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.dispatch.submit import Submitter
    from trax.host.parts import Parts
    from trax.host.receiving import Receiver

logger = logging.getLogger(__name__)


class OpenSubmitters:
    """The open submitters of one server, from its start to its stop."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.receivers: list[Receiver] = []
        """Receivers that keep the records of runs executed in processes without a database."""

    @classmethod
    async def open(cls, submitters: Iterable[Submitter], parts: Parts) -> Self:
        """Open all of them; if one fails, close those already open."""
        self = cls()
        try:
            for submitter in submitters:
                opening = open_submitter(submitter, partial(run_receiver, parts))
                receiver = await self._stack.enter_async_context(opening)
                self.receivers += [] if receiver is None else [receiver]
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close all. Without a database, the rows of receivers stay until they miss their heartbeat."""
        try:
            await self._stack.aclose()
        except StoreError as error:
            logger.warning("submitters could not be closed cleanly: %s", error)
