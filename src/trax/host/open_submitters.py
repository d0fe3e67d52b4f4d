"""What submitters keep open while a server hands over: connections, and runs whose record is kept here."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from trax.dispatch.submit import opened
from trax.errors import StoreError
from trax.host.receiving import receiving

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.dispatch.submit import Submitter
    from trax.host.parts import Parts
    from trax.host.receiving import Receiver

logger = logging.getLogger(__name__)


class OpenSubmitters:
    """Those of one server, from its start to its stop."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.receivers: list[Receiver] = []
        """Who keeps the records of runs that are executed where there is no database."""

    @classmethod
    async def of(cls, submitters: Iterable[Submitter], parts: Parts) -> Self:
        """Open all of them or, when one cannot be, none."""
        self = cls()
        try:
            for submitter in submitters:
                opening = opened(submitter, partial(receiving, parts))
                receiver = await self._stack.enter_async_context(opening)
                self.receivers += [] if receiver is None else [receiver]
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Without a database nobody can be told; the rows of receivers are found silent, and forgotten."""
        try:
            await self._stack.aclose()
        except StoreError as error:
            logger.warning("what submitters kept open could not be closed in good order: %s", error)
