"""Lists on pages: their filter form and pagination, with filters and cursors in the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from trax.bounds import LONGEST_NAME
from trax.errors import count_noun
from trax.records.listing import Count
from trax.records.nouns import Filter
from trax.web.context import context_of, link, path_of
from trax.web.pages.formats import parse_moment, parse_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request

    from trax.records.listing import RecordPage
    from trax.records.nouns import Noun

ROWS: Final = 50
CURSORS: Final = ("before", "after")
NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The rows, the URLs of the next and previous page, and the total if known."""

    rows: Sequence[Any]
    next: str | None = None
    previous: str | None = None
    next_label: str = "Older"
    previous_label: str = "Newer"
    count: Count | None = None
    complete: bool = True

    def summary(self, noun: str, plural: str | None = None) -> str:
        text = count_noun(len(self.rows), noun, plural)
        if not self.complete:
            return f"{text} found; only the newest records were searched"
        if self.count is None or self.count.number <= len(self.rows):
            return text
        total = f"{self.count.number:,}" if self.count.exact else f"about {self.count.number:,}"
        return f"{len(self.rows):,} of {total} {plural or noun + 's'}"


async def load_listing(
    request: Request, noun: Noun, filters: Mapping[str, Any], *, counts: bool = True, limit: int = ROWS
) -> Listing:
    """Load the page of a noun that the URL selects, and its total."""
    resource = getattr(context_of(request).app, noun.name)
    read = query_text if noun.is_by_name else query_number
    page: RecordPage[Any] = await resource.page(
        **filters, before=read(request, "before"), after=read(request, "after"), limit=limit, brief=True
    )
    older = None if page.older is None else page_url(request, before=page.older)
    newer = None if page.newer is None else page_url(request, after=page.newer)
    is_newest_first = not noun.is_ascending
    return Listing(
        rows=page.items,
        next=older if is_newest_first else newer,
        previous=newer if is_newest_first else older,
        next_label="Older" if is_newest_first else "Next",
        previous_label="Newer" if is_newest_first else "Previous",
        count=await resource.count(**filters, quick=True) if counts else None,
        complete=page.complete,
    )


def from_start(request: Request, rows: Sequence[Any], *, limit: int, key: Callable[[Any], Any]) -> Listing:
    """A list in ascending order with a next page only; `key` gives the cursor of a row."""
    has_more = len(rows) > limit
    return Listing(
        rows=rows[:limit],
        next=page_url(request, after=key(rows[limit - 1])) if has_more else None,
        previous=page_url(request) if "after" in request.query_params else None,
        next_label="Next",
        previous_label="First",
    )


def page_url(request: Request, **cursor: Any) -> str:
    """The URL of this list with another cursor."""
    filters = {name: value for name, value in request.query_params.items() if name not in CURSORS and value}
    return link(request, path_of(request), **{**filters, **cursor})


def query_text(request: Request, name: str) -> str | None:
    """A query parameter; None if empty."""
    return request.query_params.get(name, "").strip() or None


def query_number(request: Request, name: str) -> int | None:
    """A numeric query parameter; an invalid one is ignored, so that the page still loads."""
    return parse_whole(request.query_params.get(name, "").strip())


def query_choice(request: Request, name: str, choices: Iterable[str]) -> str | None:
    value = query_text(request, name)
    return value if value in set(choices) else None


@dataclass(frozen=True, slots=True)
class FilterField:
    """A field of a filter form: a text, or options, each of which stands for values of filters."""

    name: str
    label: str
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    empty: str = "any"
    placeholder: str = ""
    shows: Filter | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class FilterForm:
    """The fields of a form, and the filters that the URL selects with them."""

    fields: Sequence[FilterField]
    filters: Mapping[str, Any]
    is_filtered: bool


def read_filters(
    request: Request, noun: Noun, *own: FilterField, defaults: Mapping[str, str] = NONE
) -> FilterForm:
    """Read the filters of a noun from the URL; the page's own fields replace those of the same name.

    A default applies if the URL does not have the field. An invalid value is ignored, so that the page loads.
    """
    replaced = {None, *(each.name for each in own)}
    described = [each for each in noun.filters_by_name.values() if each.field not in replaced]
    fields: list[FilterField] = []
    filters: dict[str, Any] = {}
    for each in (*map(_field_of, described), *own):
        is_given = each.name in request.query_params
        text = query_text(request, each.name) if is_given else defaults.get(each.name)
        if each.shows is not None:
            value = filters[each.shows.name] = _parse(each.shows.kind, text or "")
            text = None if value is None else text
        else:
            filters.update(each.options.get(text or "", {}))
            text = text if text in each.options else None
        fields.append(replace(each, value=text))
    is_filtered = any(each.value != defaults.get(each.name) for each in fields)
    return FilterForm(fields, filters, is_filtered)


def _field_of(described: Filter) -> FilterField:
    name, words = described.field or "", dict(zip(described.choices, described.choices, strict=True))
    options = {"yes": True, "no": False} if described.kind is bool else words
    if options:
        empty = described.placeholder or "any"
        return FilterField(
            name, described.title, {word: {described.name: value} for word, value in options.items()}, empty
        )
    return FilterField(name, described.title, placeholder=described.placeholder, shows=described)


def _parse(kind: type[Any], text: str) -> Any:
    if kind is int:
        return parse_whole(text)
    return parse_moment(text) if kind is datetime else text[:LONGEST_NAME] or None
