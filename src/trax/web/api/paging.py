"""Long lists, a page at a time: each page says how to ask for the ones next to it.

A list is brief: what may be long (inputs, outputs, stack traces) is not even read, unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field
from pydantic_core import PydanticCustomError
from starlette.convertors import StringConvertor, register_url_convertor

from trax.bounds import (
    A_MOMENT,
    LARGEST_COUNT,
    LARGEST_ID,
    LONGEST_NAME,
    LONGEST_SECONDS,
    PRIORITY_MAX,
    is_moment,
)
from trax.records.count import Count
from trax.records.page import Page as Found
from trax.web.api.writing import brief
from trax.web.masking import Mask

LONGEST_PAGE: Final = 200

T = TypeVar("T")


def _check_moment(moment: datetime) -> datetime:
    """An offset may carry a moment out of the calendar, which ends on both sides."""
    if not is_moment(moment):
        raise PydanticCustomError("moment", "must be {wanted}", {"wanted": A_MOMENT})
    return moment


Limit = Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="How many at most.")]
After = Annotated[int | None, Query(ge=0, le=LARGEST_ID, description="Read on: `next` of the page before.")]
Before = Annotated[int | None, Query(ge=0, le=LARGEST_ID, description="Go back: `previous` of the page.")]
AfterName = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="Read on: `next` of the page before.")
]
BeforeName = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="Go back: `previous` of the page.")
]
NameQuery = Annotated[str | None, Query(max_length=LONGEST_NAME)]
Moment = Annotated[AwareDatetime, AfterValidator(_check_moment)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
WholeNumber = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Priority = Annotated[int, Field(ge=0, le=PRIORITY_MAX)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
WithTotal = Annotated[bool, Query(description="Also count them all: exactly to 10,000, beyond that about.")]
Full = Annotated[
    bool,
    Query(
        description="Else `input`, `output` and `stack_trace` are null, `junctions` is empty, and long "
        "reasons are cut. What is very long gives way to a note even so: ask for the record itself."
    ),
]
RowId = Annotated[int, Field(ge=0, le=LARGEST_ID)]
PathId = Annotated[int, Path(ge=0, le=LARGEST_ID)]


class RowIdConvertor(StringConvertor):
    """A number in a path, written `{entry_id:row_id}`: `/queue/cancel` is no entry, and has its own methods.

    Whether it can be an id is for `PathId` to say, which names it in the answer.
    """

    regex = "-?[0-9]+"


register_url_convertor("row_id", RowIdConvertor())


class Total(BaseModel):
    """How many there are in all; beyond 10,000 an estimate, which is not `exact`."""

    count: int
    exact: bool


class Page(BaseModel, Generic[T]):
    """Some items, and where to go from here; null: there is nothing more that way.

    A search that no index answers looks at a bounded number of rows. When it stopped there, `complete` is
    false, and `next` goes on from where it stopped, however few items it found.
    """

    items: list[T]
    next: int | str | None = None
    previous: int | str | None = None
    complete: bool = True
    total: Total | None = None


class Asked(BaseModel):
    """What every long list can be asked; those of one noun add what narrows them."""

    limit: Limit = 50
    total: WithTotal = False
    full: Full = False

    @property
    def wanted(self) -> dict[str, Any]:
        """What narrows the list."""
        return self.model_dump(exclude={"after", "before", *Asked.model_fields})


class AskedById(Asked):
    """A list whose newest items come first."""

    after: After = None
    before: Before = None


class AskedByName(Asked):
    """A list in the order of names."""

    after: AfterName = None
    before: BeforeName = None


async def page_asked(noun: Any, asked: AskedById | AskedByName, mask: Mask) -> Page[Any]:
    """The page of a noun's resource that was asked for, with its items as they may be shown."""
    is_by_id = isinstance(asked, AskedById)
    down, up = (asked.after, asked.before) if is_by_id else (asked.before, asked.after)
    found = await noun.page(before=down, after=up, limit=asked.limit, brief=not asked.full, **asked.wanted)
    total = await noun.count(**asked.wanted) if asked.total else None
    return page_of(found, [brief(one, mask) for one in found.items], total, newest_first=is_by_id)


def page(found: Sequence[Any], limit: int, *, by: str = "id") -> Page[Any]:
    """A page of a plain list, which is read in one direction."""
    following = getattr(found[-1], by) if len(found) >= limit else None
    return Page[Any].model_construct(items=list(found), next=following)


def page_of(
    found: Found[Any], items: Iterable[Any], total: Count | None = None, *, newest_first: bool = True
) -> Page[Any]:
    """A page as it was found, with its items as they may be shown."""
    onward, back = (found.older, found.newer) if newest_first else (found.newer, found.older)
    return Page[Any].model_construct(
        items=list(items),
        next=onward,
        previous=back,
        complete=found.complete,
        total=None if total is None else Total(count=total.number, exact=total.exact),
    )
