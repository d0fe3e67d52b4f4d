"""One page of a long list, and the way to the others. What is asked for stands in the address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trax.records.count import Count
from trax.web.pages.spelled import whole
from trax.web.pages.words import many
from trax.web.room import link, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request

    from trax.records.page import Page

ROWS: Final = 50
CURSORS: Final = ("before", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The rows, the addresses of the pages beside this one, and how many there are, if that is known."""

    rows: Sequence[Any]
    next: str | None = None
    previous: str | None = None
    on_word: str = "Older"
    back_word: str = "Newer"
    count: Count | None = None
    complete: bool = True

    def said(self, noun: str, plural: str | None = None) -> str:
        shown = many(len(self.rows), noun, plural)
        if not self.complete:
            return f"{shown} found so far; only the newest were searched"
        if self.count is None or self.count.number <= len(self.rows):
            return shown
        total = f"{self.count.number:,}" if self.count.exact else f"about {self.count.number:,}"
        return f"{len(self.rows):,} of {total} {plural or noun + 's'}"


async def newest_of(request: Request, noun: Any, **wanted: Any) -> Listing:
    """The page of a noun's list that the address asks for, briefly, and how many there are in all."""
    found = await noun.page(
        **wanted, before=number(request, "before"), after=number(request, "after"), limit=ROWS, brief=True
    )
    return newest_first(request, found, await noun.count(**wanted, quick=True))


def newest_first(request: Request, page: Page[Any], count: Count | None = None) -> Listing:
    """A list by id, which reads on towards older rows."""
    return Listing(
        rows=page.items,
        next=None if page.older is None else address(request, before=page.older),
        previous=None if page.newer is None else address(request, after=page.newer),
        count=count,
        complete=page.complete,
    )


def by_id(request: Request, rows: Sequence[Any], *, limit: int = ROWS) -> Listing:
    """A list by id that can be read in one direction; one row more than fits says that there is more."""
    has_more = len(rows) > limit
    return Listing(
        rows=rows[:limit],
        next=address(request, before=rows[limit - 1].id) if has_more else None,
        previous=address(request) if "before" in request.query_params else None,
        back_word="Newest",
    )


def onwards(request: Request, rows: Sequence[Any], *, limit: int, key: Callable[[Any], Any]) -> Listing:
    """A list from its start that can be read in one direction, in the same way; the key says where one is."""
    has_more = len(rows) > limit
    return Listing(
        rows=rows[:limit],
        next=address(request, after=key(rows[limit - 1])) if has_more else None,
        previous=address(request) if "after" in request.query_params else None,
        on_word="Further",
        back_word="From the start",
    )


def by_name(request: Request, page: Page[Any], count: Count | None = None) -> Listing:
    """A list in the order of names, which reads on towards the end of the alphabet."""
    return Listing(
        rows=page.items,
        next=None if page.newer is None else address(request, after=page.newer),
        previous=None if page.older is None else address(request, before=page.older),
        on_word="Further",
        back_word="Back",
        count=count,
        complete=page.complete,
    )


def address(request: Request, **cursor: Any) -> str:
    """The page that is shown, at another place of its list."""
    asked = {name: value for name, value in request.query_params.items() if name not in CURSORS and value}
    return link(request, path_of(request), **{**asked, **cursor})


def word(request: Request, name: str) -> str | None:
    """What the address says, if it says anything."""
    return request.query_params.get(name, "").strip() or None


def number(request: Request, name: str) -> int | None:
    """A number from the address. What is none is left out: a page is shown, and not an error."""
    return whole(request.query_params.get(name, "").strip())


def one_of(request: Request, name: str, words: Iterable[str]) -> str | None:
    said = word(request, name)
    return said if said in set(words) else None
