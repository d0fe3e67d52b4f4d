"""Pages of manifests, in the order of their external ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Boolean, literal_column

from trax.records.page import RecordPage
from trax.store import manifests
from trax.store.counting import estimate_index_rows
from trax.store.names import group_id, manifest_id
from trax.store.paging import Search, count_rows, first_page_of, page_of
from trax.store.schema import tables
from trax.store.schema.manifest import LIVE, RETIRED

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from trax.records import Manifest
    from trax.records.count import Count
    from trax.records.filters import ManifestFilter

WINDOW: Final = 20_000
"""How many manifests the search for one page reads."""
NAMES_WINDOW: Final = 100_000
"""How many, if only external ids are compared: the index has those."""


def page(
    connection: Connection,
    manifest_filter: ManifestFilter,
    *,
    before: str | None,
    after: str | None,
    limit: int,
    brief: bool = False,
) -> RecordPage[Manifest]:
    """A page in ascending order of external ids; `older` is the previous page and `newer` the next."""
    search = _search(connection, manifest_filter)
    if before is None and after is None:
        page_keys = first_page_of(connection, search, limit=limit)
    else:
        page_keys = page_of(connection, search, below=before, above=after, limit=limit)
    names = page_keys.keys[::-1]
    items = tuple(manifests.load_by_names(connection, names, brief=brief)) if names else ()
    return RecordPage(items=items, older=page_keys.below, newer=page_keys.above, complete=page_keys.complete)


def count(connection: Connection, manifest_filter: ManifestFilter, *, quick: bool = False) -> Count:
    return count_rows(connection, _search(connection, manifest_filter), quick=quick)


def _search(connection: Connection, manifest_filter: ManifestFilter) -> Search:
    manifest = tables(connection).manifest
    filters = {
        manifest.c.train: manifest_filter.train,
        manifest.c.enabled: manifest_filter.enabled,
        manifest.c.schedule_type: manifest_filter.schedule_type,
    }
    others: list[ColumnElement[bool]] = [
        column == value for column, value in filters.items() if value is not None
    ]
    window = WINDOW if others else NAMES_WINDOW
    if manifest_filter.text is not None:
        others.append(manifest.c.external_id.icontains(manifest_filter.text, autoescape=True))
    search = Search(table=manifest, unindexed=others, key="external_id", window=window)
    if manifest_filter.retired is not None:
        search = replace(search, **_narrow_to_retired(connection, is_retired=manifest_filter.retired))
    if manifest_filter.group is not None:
        search = search.narrow(manifest.c.group_id == group_id(connection, manifest_filter.group))
    if manifest_filter.depends_on is not None:
        search = search.narrow(
            manifest.c.depends_on_id == manifest_id(connection, manifest_filter.depends_on)
        )
    return search


def _narrow_to_retired(connection: Connection, *, is_retired: bool) -> dict[str, Any]:
    """Use the index of live or of retired manifests."""
    manifest, condition = tables(connection).manifest, RETIRED if is_retired else LIVE
    index = "manifest_retired_idx" if is_retired else "manifest_live_idx"
    return {
        "indexed": (literal_column(f"({condition})", Boolean),),
        "total": lambda: estimate_index_rows(connection, manifest, index, condition),
    }
