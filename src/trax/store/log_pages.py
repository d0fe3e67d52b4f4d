"""Log lines across all runs. A search looks at the newest lines only, and not for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.records.states import LogLevel
from trax.store import logs
from trax.store.dialect import take_no_longer
from trax.store.lists import Lists
from trax.store.paging import Search
from trax.store.schema import tables

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from trax.records.filters import LogFilter

SECONDS: Final = 2.0
LOUDNESS: Final = tuple(LogLevel)
"""From the quietest to the loudest."""


def _search(connection: Connection, wanted: LogFilter) -> Search:
    take_no_longer(connection, seconds=SECONDS)
    log = tables(connection).log
    of_run = [] if wanted.metadata_id is None else [log.c.metadata_id == wanted.metadata_id]
    others: list[ColumnElement[bool]] = []
    if wanted.level is not None:
        others.append(log.c.level.in_(LOUDNESS[LOUDNESS.index(wanted.level) :]))
    if wanted.text is not None:
        others.append(log.c.message.icontains(wanted.text, autoescape=True))
    return Search(table=log, indexed=of_run, others=others)


LINES: Final = Lists(search=_search, records=logs.records, record=logs.record)
page = LINES.page
