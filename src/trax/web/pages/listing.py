"""Pagination of lists, with filters and cursors in the URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trax.errors import count_noun
from trax.records.listing import Count
from trax.web.context import link, path_of
from trax.web.pages.formats import parse_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request

    from trax.records.listing import RecordPage

ROWS: Final = 50
CURSORS: Final = ("before", "after")


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


async def load_newest(request: Request, noun: Any, **filters: Any) -> Listing:
    """Load the page of a resource that the URL selects, and its total."""
    page = await noun.page(
        **filters,
        before=query_number(request, "before"),
        after=query_number(request, "after"),
        limit=ROWS,
        brief=True,
    )
    return newest_first(request, page, await noun.count(**filters, quick=True))


def newest_first(request: Request, page: RecordPage[Any], count: Count | None = None) -> Listing:
    """A list by id, newest first."""
    return Listing(
        rows=page.items,
        next=None if page.older is None else page_url(request, before=page.older),
        previous=None if page.newer is None else page_url(request, after=page.newer),
        count=count,
        complete=page.complete,
    )


def by_id(request: Request, rows: Sequence[Any], *, limit: int = ROWS) -> Listing:
    """A list by id with a next page only; `rows` has one more than `limit` if there is one."""
    has_more = len(rows) > limit
    return Listing(
        rows=rows[:limit],
        next=page_url(request, before=rows[limit - 1].id) if has_more else None,
        previous=page_url(request) if "before" in request.query_params else None,
        previous_label="Newest",
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


def by_name(request: Request, page: RecordPage[Any], count: Count | None = None) -> Listing:
    """A list by name, in ascending order."""
    return Listing(
        rows=page.items,
        next=None if page.newer is None else page_url(request, after=page.newer),
        previous=None if page.older is None else page_url(request, before=page.older),
        next_label="Next",
        previous_label="Previous",
        count=count,
        complete=page.complete,
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
