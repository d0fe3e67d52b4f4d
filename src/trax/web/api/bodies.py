"""Request bodies and their validation. Unknown fields and query parameters are rejected."""

from __future__ import annotations

from json import JSONDecodeError
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from trax.bounds import load_json
from trax.errors import did_you_mean, format_value
from trax.web.api.document import operations
from trax.web.api.paging import RowId
from trax.web.problems import FieldProblem, Refusal, problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.responses import Response

JSON: Final = "application/json"
IDS_AT_MOST: Final = 1000
LONGEST_NOTE: Final = 2000

Note = Annotated[str, Field(min_length=1, max_length=LONGEST_NOTE)]
IdList = Annotated[list[RowId], Field(min_length=1, max_length=IDS_AT_MOST)]


class Body(BaseModel):
    """Base of all request bodies."""

    model_config = ConfigDict(extra="forbid")


class Ids(Body):
    """Ids of the items."""

    ids: IdList


class CancelledIds(BaseModel):
    """The ids that were cancelled, and how many of the given ids could not be cancelled."""

    cancelled: list[int]
    skipped: int = 0


class DeadLetterSelection(Body):
    """Which dead letters: by id, by fingerprint (kind of failure), or all awaiting intervention."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [way]} for way in ("ids", "fingerprint", "all")]}
    )

    ids: IdList | None = None
    fingerprint: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    all: Literal[True] | None = None

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        selectors = [way for way in (self.ids, self.fingerprint, self.all) if way is not None]
        if len(selectors) != 1:
            raise PydanticCustomError("chosen", "give exactly one of ids, fingerprint and all")
        return self


class JsonRequest(Request):
    """A request whose JSON body is parsed within the limits of `load_json`."""

    async def json(self) -> Any:
        try:
            return load_json(await self.body())
        except JSONDecodeError:
            raise
        except ValueError as error:
            raise JSONDecodeError(str(error), "", 0) from None


class JsonRoute(APIRoute):
    """A route of the API that parses JSON bodies with `JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def read_and_handle(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return read_and_handle


async def check_request(request: Request) -> None:
    """Reject query parameters and content types that the OpenAPI document does not declare."""
    operation = operations(request.app).get(request.scope["route"].name, {})
    _check_query(request, operation)
    if "requestBody" in operation:
        _check_content_type(request, has_body=bool(await request.body()))


def _check_query(request: Request, operation: dict[str, Any]) -> None:
    known = sorted(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if not unknown:
        return
    fields = [
        FieldProblem(f"query.{name}", f"unknown query parameter{did_you_mean(name, known)}")
        for name in unknown
    ]
    detail = "; ".join(
        f"unknown query parameter {format_value(name)}{did_you_mean(name, known)}" for name in unknown
    )
    hint = "this operation has no query parameters"
    if known:
        hint = f"known query parameters: {', '.join(known)}"
    raise Refusal(problem(422, detail, code="unknown_parameter", hint=hint, fields=tuple(fields)))


def _check_content_type(request: Request, *, has_body: bool) -> None:
    """Never parse a body as JSON unless it is declared as JSON."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = sent == JSON or (sent.startswith("application/") and sent.endswith("+json"))
    if has_body and not is_json:
        detail = f"the body must be {JSON} (got {format_value(sent)})" if sent else f"the body must be {JSON}"
        raise Refusal(problem(415, detail, hint=f"send Content-Type: {JSON}"), {"Accept": JSON})
