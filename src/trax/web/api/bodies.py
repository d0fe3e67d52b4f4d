"""What requests carry. A field or parameter that nobody knows is refused: no typo goes unnoticed."""

from __future__ import annotations

from json import JSONDecodeError
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from trax.bounds import load_json
from trax.errors import did_you_mean, shown
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
    """What every body has in common."""

    model_config = ConfigDict(extra="forbid")


class Ids(Body):
    """Which ones."""

    ids: IdList


class Chosen(Body):
    """Which dead letters: these, those of one kind of failure, or all that wait."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [way]} for way in ("ids", "fingerprint", "all")]}
    )

    ids: IdList | None = None
    fingerprint: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    all: Literal[True] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        said = [way for way in (self.ids, self.fingerprint, self.all) if way is not None]
        if len(said) != 1:
            raise PydanticCustomError("chosen", "say one of ids, fingerprint and all")
        return self


class JsonRequest(Request):
    """A request whose body is read within the bounds of `load_json`."""

    async def json(self) -> Any:
        try:
            return load_json(await self.body())
        except JSONDecodeError:
            raise
        except ValueError as wrong:
            raise JSONDecodeError(str(wrong), "", 0) from None


class JsonRoute(APIRoute):
    """A route of the API: what it is sent is read once, here, whatever its handler makes of it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def read_and_handle(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return read_and_handle


async def check_request(request: Request) -> None:
    """Refuse what the document of the API does not know of the operation that was asked for."""
    operation = operations(request.app).get(request.scope["route"].name, {})
    _check_query(request, operation)
    if "requestBody" in operation:
        _check_content_type(request, has_body=bool(await request.body()))


def _check_query(request: Request, operation: dict[str, Any]) -> None:
    known = sorted(one["name"] for one in operation.get("parameters", ()) if one["in"] == "query")
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if not unknown:
        return
    fields = [
        FieldProblem(f"query.{name}", f"unknown query parameter{did_you_mean(name, known)}")
        for name in unknown
    ]
    told = "; ".join(f"unknown query parameter {shown(name)}{did_you_mean(name, known)}" for name in unknown)
    hint = "this operation has no query parameters"
    if known:
        hint = f"known query parameters: {', '.join(known)}"
    raise Refusal(problem(422, told, code="unknown_parameter", hint=hint, fields=tuple(fields)))


def _check_content_type(request: Request, *, has_body: bool) -> None:
    """Bytes of another type, or of none, are never read as JSON by guess."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = sent == JSON or (sent.startswith("application/") and sent.endswith("+json"))
    if has_body and not is_json:
        told = f"the body must be {JSON} (got {shown(sent)})" if sent else f"the body must be {JSON}"
        raise Refusal(problem(415, told, hint=f"send Content-Type: {JSON}"), {"Accept": JSON})
