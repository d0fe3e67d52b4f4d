"""Lists, pages and counts of records for callers: validate the arguments, then query the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from trax.host.checks import ID_OR_NONE, PAGE
from trax.host.opening import LazyStore
from trax.store.lists import RecordQuery

if TYPE_CHECKING:
    from trax.records.count import Count
    from trax.records.page import RecordPage

F = TypeVar("F")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordLists(Generic[F, T]):
    """Lists, pages and counts of one kind of record."""

    store: LazyStore
    lists: RecordQuery[F, T]

    async def load_list(self, filters: F, *, before: int | None, limit: int, brief: bool) -> list[T]:
        before, limit = ID_OR_NONE("before", before), PAGE("limit", limit)
        store = await self.store.open()
        return await store.ask(self.lists.load_list, filters, before=before, limit=limit, brief=brief)

    async def page(
        self, filters: F, *, before: int | None, after: int | None, limit: int, brief: bool
    ) -> RecordPage[T]:
        before, after = ID_OR_NONE("before", before), ID_OR_NONE("after", after)
        limit = PAGE("limit", limit)
        store = await self.store.open()
        return await store.ask(self.lists.page, filters, before=before, after=after, limit=limit, brief=brief)

    async def count(self, filters: F, *, quick: bool) -> Count:
        store = await self.store.open()
        return await store.ask(self.lists.count, filters, quick=quick)
