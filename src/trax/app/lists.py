"""Validated lists, pages and counts of the records of a noun, and parsing of enumerated values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from trax.engine.open_store import LazyStore
from trax.errors import DefinitionError, did_you_mean, format_value
from trax.records.nouns import Noun
from trax.schedule.validate import (
    FLAG_OR_NONE,
    ID_OR_NONE,
    MOMENT_OR_NONE,
    NAME_OR_NONE,
    PAGE,
    Requirement,
)
from trax.store.listing import RecordQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trax.records.listing import Count, RecordPage
    from trax.records.nouns import Filter
    from trax.store import Connection, Store

T = TypeVar("T")
REQUIREMENTS: Final[Mapping[type[Any], Requirement]] = {
    str: NAME_OR_NONE,
    int: ID_OR_NONE,
    bool: FLAG_OR_NONE,
    datetime: MOMENT_OR_NONE,
}


@dataclass(frozen=True, slots=True)
class RecordLists(Generic[T]):
    """Lists, pages and counts of one noun, from the keywords that a caller gave.

    A query that `needs_now` gets the time of the database with its filters.
    """

    store: LazyStore
    noun: Noun
    query: RecordQuery[Any, T]
    needs_now: bool = False

    async def load_list(self, keywords: Mapping[str, Any]) -> list[T]:
        return await self._ask(self.query.load_list, keywords, parse_paging(self.noun, keywords))

    async def page(self, keywords: Mapping[str, Any]) -> RecordPage[T]:
        return await self._ask(self.query.page, keywords, parse_paging(self.noun, keywords))

    async def count(self, filters: Mapping[str, Any], *, quick: bool) -> Count:
        return await self._ask(self.query.count, filters, {"quick": quick})

    async def _ask(
        self, verb: Callable[..., Any], keywords: Mapping[str, Any], more: Mapping[str, Any]
    ) -> Any:
        filters = parse_filters(self.noun, {name: keywords[name] for name in keywords.keys() - more.keys()})
        store = await self.store.open()
        return await store.ask(_query, verb, filters, more, store if self.needs_now else None)


def _query(
    connection: Connection,
    verb: Callable[..., T],
    filters: Mapping[str, Any],
    more: Mapping[str, Any],
    clock: Store | None,
) -> T:
    found = filters if clock is None else {**filters, "now": clock.now(connection)}
    return verb(connection, found, **more)


def parse_paging(noun: Noun, keywords: Mapping[str, Any]) -> dict[str, Any]:
    requirement = NAME_OR_NONE if noun.is_by_name else ID_OR_NONE
    cursors = {name: requirement(name, keywords.get(name)) for name in ("before", "after")}
    limit = PAGE("limit", keywords.get("limit", 50))
    return {**cursors, "limit": limit, "brief": keywords.get("brief", False)}


def parse_filters(noun: Noun, given: Mapping[str, Any]) -> dict[str, Any]:
    """All filters of a noun with their values; raises an error for an unknown one or an invalid value."""
    known = noun.filters_by_name
    for name in given.keys() - known.keys():
        raise DefinitionError(f"unknown filter {format_value(name)}{did_you_mean(name, known)}")
    return {name: _parse(each, given.get(name, each.default)) for name, each in known.items()}


def _parse(described: Filter, value: Any) -> Any:
    if issubclass(described.kind, StrEnum):
        return parse_choice(described.kind, value)
    return REQUIREMENTS[described.kind](described.name, value)


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
