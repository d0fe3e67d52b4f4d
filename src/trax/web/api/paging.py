"""Lists in the API: query parameters, pages with cursors, and JSON responses with secrets masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeAlias, TypeVar

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, TypeAdapter, create_model
from pydantic_core import PydanticCustomError, to_json
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.responses import Response

from trax.bounds import (
    LARGEST_COUNT,
    LARGEST_ID,
    LONGEST_NAME,
    MOMENT_TEXT,
    PRIORITY_MAX,
    is_moment,
)
from trax.records.nouns import Noun
from trax.web.access import Visitor
from trax.web.context import InjectedContext, InjectedVisitor, WebContext
from trax.web.masking import Mask

if TYPE_CHECKING:
    from trax.records.listing import Count, RecordPage

BRIEF_BYTES: Final = 4096
"""Longer inputs and outputs are omitted from lists; the single record has them."""
VALUES: Final = ("input", "output")


class JsonWriter:
    """Serialises values of one type as a JSON response."""

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def __call__(self, value: Any, status: int = 200) -> Response:
        return Response(self._adapter.dump_json(value), status, media_type="application/json")


def mask_record(record: Any, mask: Mask) -> Any:
    """Mask the secrets in a record's input and output."""
    return replace(record, **{name: mask(getattr(record, name)) for name in VALUES if hasattr(record, name)})


def summarize_record(record: Any, mask: Mask) -> Any:
    """Mask a record for a list, and omit long values."""
    values = {name: getattr(record, name) for name in VALUES if hasattr(record, name)}
    return replace(record, **{name: _shorten(mask(value)) for name, value in values.items()})


def _shorten(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    size = len(to_json(value))
    return value if size <= BRIEF_BYTES else {"_omitted": True, "bytes": size}


LONGEST_PAGE: Final = 200

T = TypeVar("T")


def _check_moment(moment: datetime) -> datetime:
    """Check the range: a UTC offset may move a moment beyond the supported years."""
    if not is_moment(moment):
        raise PydanticCustomError("moment", "must be {expected}", {"expected": MOMENT_TEXT})
    return moment


Limit = Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="Maximum number of items.")]
After = Annotated[
    int | None, Query(ge=0, le=LARGEST_ID, description="Only items with a higher id: newer ones.")
]
Before = Annotated[
    int | None, Query(ge=0, le=LARGEST_ID, description="Only items with a lower id: older ones.")
]
AfterName = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="Only items whose name comes after this one.")
]
BeforeName = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="Only items whose name comes before this one.")
]
NameQuery = Annotated[str | None, Query(max_length=LONGEST_NAME)]
Moment = Annotated[AwareDatetime, AfterValidator(_check_moment)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
WholeNumber = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Priority = Annotated[int, Field(ge=0, le=PRIORITY_MAX)]
WithTotal = Annotated[
    bool, Query(description="Also return the total: exact up to 10,000, above that an estimate.")
]
Full = Annotated[
    bool,
    Query(
        description="Include long fields. By default `input`, `output` and `stack_trace` are null, "
        "`junctions` is empty and long reasons are cut. Very long values are omitted in any case: "
        "get the single record."
    ),
]
RowId = Annotated[int, Field(ge=0, le=LARGEST_ID)]
PathId = Annotated[int, Path(ge=0, le=LARGEST_ID)]


class RowIdConvertor(StringConvertor):
    """A number in a path, written `{entry_id:row_id}`, so that `/queue/cancel` does not match an entry.

    `PathId` validates the range, and names the field in the error.
    """

    regex = "-?[0-9]+"


register_url_convertor("row_id", RowIdConvertor())


class Total(BaseModel):
    """The number of items in total; above 10,000 an estimate, with `exact` false."""

    count: int
    exact: bool


class ApiPage(BaseModel, Generic[T]):
    """A page of items, with the cursors of the next and previous page; null: there is none.

    In a list by id, newest first, the next page is `before=next`, the previous one `after=previous`. In a
    list by name, and of workers, the next page is `after=next`, the previous one `before=previous`.

    A search without an index reads a bounded number of rows. If it stopped there, `complete` is false, and
    `next` continues from where it stopped, even if few items were found.
    """

    items: list[T]
    next: int | str | None = None
    previous: int | str | None = None
    complete: bool = True
    total: Total | None = None


class ListQuery(BaseModel):
    """Query parameters of every list; `build_list_query` adds cursors and filters of a noun."""

    before: int | str | None = None
    after: int | str | None = None
    limit: Limit = 50
    total: WithTotal = False
    full: Full = False

    @property
    def filters(self) -> dict[str, Any]:
        """The filters, without the parameters of paging."""
        return self.model_dump(exclude=set(ListQuery.model_fields))


TYPES: Final[Mapping[type[Any], Any]] = {
    str: Annotated[str, Field(max_length=LONGEST_NAME)],
    int: RowId,
    datetime: Moment,
}


def build_list_query(noun: Noun) -> type[ListQuery]:
    """The query parameters of the list of a noun: its filters, its cursors and its defaults."""
    fields: dict[str, Any] = {
        "before": (BeforeName if noun.is_by_name else Before, None),
        "after": (AfterName if noun.is_by_name else After, None),
        "full": (Full, noun.is_full),
    }
    for name, each in noun.filters_by_name.items():
        found = TYPES.get(each.kind, each.kind)
        optional = found if each.default is not None else found | None
        fields[name] = (Annotated[optional, Query(description=each.help)], each.default)
    return create_model(f"{noun.name}_query", __base__=ListQuery, **fields)


Restrict: TypeAlias = Callable[[Visitor, Mapping[str, Any]], Mapping[str, Any] | None]
"""Narrows filters to what the client may see; None if it may see nothing."""


def add_list_route(
    router: APIRouter,
    noun: Noun,
    record: Any,
    *,
    operation: str | None = None,
    more_help: str = "",
    restrict: Restrict | None = None,
) -> None:
    """Add the route that lists, pages and counts the records of a noun."""
    page_type: Any = ApiPage[record]
    respond = JsonWriter(page_type)

    async def list_records(context: WebContext, visitor: Visitor, query: ListQuery) -> Response:
        filters = query.filters if restrict is None else restrict(visitor, query.filters)
        if filters is None:
            return respond(ApiPage[Any](items=[]))
        return respond(await load_page(context, noun, query, filters))

    list_records.__annotations__ = {
        "context": InjectedContext,
        "visitor": InjectedVisitor,
        "query": Annotated[build_list_query(noun), Query()],
    }
    list_records.__doc__ = noun.summary + more_help
    name = operation or f"list_{noun.name}"
    router.add_api_route("", list_records, name=name, methods=["GET"], response_model=page_type)


async def load_page(
    context: WebContext, noun: Noun, query: ListQuery, filters: Mapping[str, Any]
) -> ApiPage[Any]:
    """Load a page from a resource of the app, with secrets in its items masked."""
    resource = getattr(context.app, noun.name)
    found: RecordPage[Any] = await resource.page(
        before=query.before, after=query.after, limit=query.limit, brief=not query.full, **filters
    )
    total: Count | None = await resource.count(**filters) if query.total else None
    is_newest_first = not noun.is_ascending
    return ApiPage[Any].model_construct(
        items=[summarize_record(item, context.mask) for item in found.items],
        next=found.older if is_newest_first else found.newer,
        previous=found.newer if is_newest_first else found.older,
        complete=found.complete,
        total=None if total is None else Total(count=total.number, exact=total.exact),
    )
