"""`app.logs`: what runs logged, across all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.host.asked_lists import AskedLists
from trax.host.checks import ID_OR_NONE, check_names
from trax.host.words import checked_word
from trax.records.filters import LogFilter
from trax.records.states import LogLevel
from trax.store import log_pages

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.records.log_line import LogLine
    from trax.records.page import Page


class Logs:
    """Lines of all runs; those of one run are also at `app.executions.logs`."""

    def __init__(self, parts: Parts) -> None:
        self._lists = AskedLists(parts.store, log_pages.LINES)

    async def page(
        self,
        *,
        level: LogLevel | str | None = None,
        text: str | None = None,
        metadata_id: int | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
    ) -> Page[LogLine]:
        """Newest first: lines of this level or a louder one, with this text in their message.

        A search looks at so many of the newest lines. When that is not all, `complete` is False, and
        `older` goes on from there. With `brief` stack traces are left out, and long messages are cut.
        """
        check_names(text=text)
        wanted = LogFilter(
            level=checked_word(LogLevel, level), text=text, metadata_id=ID_OR_NONE("metadata_id", metadata_id)
        )
        return await self._lists.page(wanted, before=before, after=after, limit=limit, brief=brief)
