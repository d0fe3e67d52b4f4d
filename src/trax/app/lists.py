"""Validated lists, pages and counts of one kind of record, and parsing of enumerated values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from trax.engine.open_store import LazyStore
from trax.errors import DefinitionError, did_you_mean, format_value
from trax.schedule.validate import ID_OR_NONE, PAGE, check_names
from trax.store.listing import RecordQuery

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum

    from trax.records.listing import Count, RecordPage


F = TypeVar("F")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordLists(Generic[F, T]):
    """Lists, pages and counts of one kind of record, by id or by name."""

    store: LazyStore
    lists: RecordQuery[F, T]
    by_name: bool = False

    async def load_list(
        self, filters: F, *, before: int | str | None, after: int | str | None, limit: int, brief: bool
    ) -> list[T]:
        keywords = self._paging(before, after, limit, brief=brief)
        store = await self.store.open()
        return await store.ask(self.lists.load_list, filters, **keywords)

    async def page(
        self, filters: F, *, before: int | str | None, after: int | str | None, limit: int, brief: bool
    ) -> RecordPage[T]:
        keywords = self._paging(before, after, limit, brief=brief)
        store = await self.store.open()
        return await store.ask(self.lists.page, filters, **keywords)

    async def count(self, filters: F, *, quick: bool) -> Count:
        store = await self.store.open()
        return await store.ask(self.lists.count, filters, quick=quick)

    def _paging(self, before: Any, after: Any, limit: int, *, brief: bool) -> dict[str, Any]:
        if self.by_name:
            check_names(before=before, after=after)
        else:
            ID_OR_NONE("before", before)
            ID_OR_NONE("after", after)
        return {"before": before, "after": after, "limit": PAGE("limit", limit), "brief": brief}


def check_filters(filters: Mapping[str, Any], known: type[Any]) -> None:
    """Refuse a filter that is not a key of the TypedDict `known`."""
    for name in filters.keys() - known.__annotations__.keys():
        raise DefinitionError(
            f"unknown filter {format_value(name)}{did_you_mean(name, known.__annotations__)}"
        )


ChoiceT = TypeVar("ChoiceT", bound="StrEnum")


def parse_choice(choices: type[ChoiceT], value: str | None) -> ChoiceT | None:
    """Parse a value of this enum; None stays None. Raises DefinitionError with the valid values."""
    if value is None:
        return None
    values = [word.value for word in choices]
    if isinstance(cast("Any", value), str) and value in values:
        return choices(value)
    nearest = did_you_mean(value, values) if isinstance(cast("Any", value), str) else ""
    hint = nearest or f"; expected one of {', '.join(values)}"
    noun = re.sub(r"(?<!^)(?=[A-Z])", " ", choices.__name__).lower()
    raise DefinitionError(f"invalid {noun} {format_value(value)}{hint}")
