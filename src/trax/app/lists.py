"""Parse a state, status or other enumerated value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from trax.engine.open_store import LazyStore
from trax.errors import TraxError, did_you_mean, format_value
from trax.schedule.validate import ID_OR_NONE, PAGE
from trax.store.listing import RecordQuery

if TYPE_CHECKING:
    from enum import StrEnum

    from trax.records.listing import Count, RecordPage


ChoiceT = TypeVar("ChoiceT", bound="StrEnum")


def parse_choice(choices: type[ChoiceT], value: str | None) -> ChoiceT | None:
    """Parse a value of this enum; None stays None. Raises TraxError with the valid values."""
    if value is None:
        return None
    try:
        return choices(value)
    except ValueError:
        words = [word.value for word in choices]
        hint = did_you_mean(str(value), words) or f"; expected one of {', '.join(words)}"
        noun = re.sub(r"(?<!^)(?=[A-Z])", " ", choices.__name__).lower()
        raise TraxError(f"invalid {noun} {format_value(value)}{hint}") from None


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
