"""Lists as callers ask for them: what they say is checked, and the store is opened, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from trax.host.checks import ID_OR_NONE, PAGE
from trax.host.opening import OpenStore
from trax.store.lists import Lists

if TYPE_CHECKING:
    from trax.records.count import Count
    from trax.records.page import Page

F = TypeVar("F")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AskedLists(Generic[F, T]):
    """The lists of one kind of record."""

    opening: OpenStore
    lists: Lists[F, T]

    async def listed(self, wanted: F, *, before: int | None, limit: int, brief: bool) -> list[T]:
        before, limit = ID_OR_NONE("before", before), PAGE("limit", limit)
        store = await self.opening.opened()
        return await store.ask(self.lists.listed, wanted, before=before, limit=limit, brief=brief)

    async def page(
        self, wanted: F, *, before: int | None, after: int | None, limit: int, brief: bool
    ) -> Page[T]:
        before, after = ID_OR_NONE("before", before), ID_OR_NONE("after", after)
        limit = PAGE("limit", limit)
        store = await self.opening.opened()
        return await store.ask(self.lists.page, wanted, before=before, after=after, limit=limit, brief=brief)

    async def count(self, wanted: F, *, quick: bool) -> Count:
        store = await self.opening.opened()
        return await store.ask(self.lists.count, wanted, quick=quick)
