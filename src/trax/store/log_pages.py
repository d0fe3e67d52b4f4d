"""Pages of log lines across all runs. A search reads only the newest lines, with a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.records.states import LogLevel
from trax.store import logs
from trax.store.dialect import limit_statement_time
from trax.store.lists import RecordQuery
from trax.store.paging import Search
from trax.store.schema import tables

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from trax.records.filters import LogFilter

SEARCH_SECONDS: Final = 2.0
LEVELS: Final = tuple(LogLevel)
"""Log levels, lowest first."""


def _search(connection: Connection, log_filter: LogFilter) -> Search:
    limit_statement_time(connection, seconds=SEARCH_SECONDS)
    log = tables(connection).log
    of_run = [] if log_filter.metadata_id is None else [log.c.metadata_id == log_filter.metadata_id]
    others: list[ColumnElement[bool]] = []
    if log_filter.level is not None:
        others.append(log.c.level.in_(LEVELS[LEVELS.index(log_filter.level) :]))
    if log_filter.text is not None:
        others.append(log.c.message.icontains(log_filter.text, autoescape=True))
    return Search(table=log, indexed=of_run, unindexed=others)


LINES: Final = RecordQuery(search=_search, records=logs.select_records, record=logs.build_record)
page = LINES.page
