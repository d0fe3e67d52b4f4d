"""Pages of manifests, in the order of their external ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Boolean, literal_column

from trax.records.page import Page
from trax.store import manifests
from trax.store.counting import in_index
from trax.store.names import group_id, manifest_id
from trax.store.paging import Search, counted, first_page_of, page_of
from trax.store.schema import tables
from trax.store.schema.manifest import LIVE, RETIRED

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from trax.records import Manifest
    from trax.records.count import Count
    from trax.records.filters import ManifestFilter

WINDOW: Final = 20_000
"""How many manifests one page looks at."""
NAMES_WINDOW: Final = 100_000
"""How many, where only their names matter: the index has those."""


def page(
    connection: Connection,
    wanted: ManifestFilter,
    *,
    before: str | None,
    after: str | None,
    limit: int,
    brief: bool = False,
) -> Page[Manifest]:
    """From the first external id on; `older` is the way back, and `newer` leads on."""
    search = _search(connection, wanted)
    if before is None and after is None:
        found = first_page_of(connection, search, limit=limit)
    else:
        found = page_of(connection, search, below=before, above=after, limit=limit)
    names = found.keys[::-1]
    items = tuple(manifests.named(connection, names, brief=brief)) if names else ()
    return Page(items=items, older=found.below, newer=found.above, complete=found.complete)


def count(connection: Connection, wanted: ManifestFilter, *, quick: bool = False) -> Count:
    return counted(connection, _search(connection, wanted), quick=quick)


def _search(connection: Connection, wanted: ManifestFilter) -> Search:
    manifest = tables(connection).manifest
    named = {
        manifest.c.train: wanted.train,
        manifest.c.enabled: wanted.enabled,
        manifest.c.schedule_type: wanted.schedule_type,
    }
    others: list[ColumnElement[bool]] = [
        column == value for column, value in named.items() if value is not None
    ]
    window = WINDOW if others else NAMES_WINDOW
    if wanted.text is not None:
        others.append(manifest.c.external_id.icontains(wanted.text, autoescape=True))
    search = Search(table=manifest, others=others, key="external_id", window=window)
    if wanted.retired is not None:
        search = replace(search, **_kept_apart(connection, is_retired=wanted.retired))
    if wanted.group is not None:
        search = search.narrowed(manifest.c.group_id == group_id(connection, wanted.group))
    if wanted.depends_on is not None:
        search = search.narrowed(manifest.c.depends_on_id == manifest_id(connection, wanted.depends_on))
    return search


def _kept_apart(connection: Connection, *, is_retired: bool) -> dict[str, Any]:
    """Those in use and those that are retired have an index each."""
    manifest, condition = tables(connection).manifest, RETIRED if is_retired else LIVE
    index = "manifest_retired_idx" if is_retired else "manifest_live_idx"
    return {
        "indexed": (literal_column(f"({condition})", Boolean),),
        "total": lambda: in_index(connection, manifest, index, condition),
    }
