"""`app.logs`: search the log lines of all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.host.asked_lists import RecordLists
from trax.host.checks import ID_OR_NONE, check_names
from trax.host.words import parse_choice
from trax.records.filters import LogFilter
from trax.records.states import LogLevel
from trax.store import log_pages

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.records.log_line import LogLine
    from trax.records.page import RecordPage


class AppLogs:
    """Log lines of all runs. For one run, see `app.executions.logs`."""

    def __init__(self, parts: Parts) -> None:
        self._lists = RecordLists(parts.store, log_pages.LINES)

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
    ) -> RecordPage[LogLine]:
        """Lines of this level or higher whose message contains `text`, newest first.

        A search reads a bounded number of lines. If that is not all, `complete` is False, and `older`
        continues from there. With `brief`, stack traces are omitted and long messages truncated.
        """
        check_names(text=text)
        filters = LogFilter(
            level=parse_choice(LogLevel, level), text=text, metadata_id=ID_OR_NONE("metadata_id", metadata_id)
        )
        return await self._lists.page(filters, before=before, after=after, limit=limit, brief=brief)
