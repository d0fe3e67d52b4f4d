"""What went wrong with a request, as problem+json: what, with which field, and what to do about it.

Only what was made to be read leaves the house. Anything else is logged, and the answer has an id to find it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trax.errors import (
    Conflict,
    InvalidArgument,
    InvalidInput,
    InvalidSetting,
    NotFound,
    StoreError,
    StoreUnavailable,
    TraxError,
    UnknownTrain,
    shown,
)
from trax.escapes import visible_text
from trax.host.log_limit import LogLimit

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)
_outages = LogLimit()

MEDIA_TYPE: Final = "application/problem+json"
TITLES: Final = {
    400: "the request cannot be read",
    401: "nobody knows who asks",
    403: "not allowed",
    404: "not found",
    405: "this cannot be done here",
    408: "request timeout",
    409: "too late",
    413: "too large",
    415: "another type of content is needed",
    422: "invalid",
    429: "too often",
    500: "something went wrong",
    503: "the database cannot be reached",
}
CODES: Final = {
    400: "bad_request",
    401: "not_authenticated",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "too_many_requests",
    500: "internal",
    503: "unavailable",
}
FROM_THE_FRAMEWORK: Final = {
    404: "there is nothing at this address",
    405: "what is at this address takes other methods",
}
"""In whole words what it says with the name of the status alone."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that was refused. `path` leads to it: `body.ids.0`, `query.limit`, `table`."""

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What went wrong: for programs a `code`, for people the rest."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str | None = None
    fields: tuple[FieldProblem, ...] = ()
    id: str | None = None
    """Under which id the log tells more."""


def problem(
    status: int,
    detail: str,
    *,
    code: str | None = None,
    hint: str | None = None,
    fields: tuple[FieldProblem, ...] = (),
    logged_as: str | None = None,
) -> Problem:
    """What went wrong, with what was sent made visible: a request may hold characters that are no text."""
    code = code or CODES.get(status, "error")
    told = (FieldProblem(visible_text(one.path), visible_text(one.message)) for one in fields)
    return Problem(
        type=f"urn:trax:problem:{code}",
        title=TITLES.get(status, "the request was refused"),
        status=status,
        code=code,
        detail=visible_text(detail),
        hint=None if hint is None else visible_text(hint),
        fields=tuple(told),
        id=logged_as,
    )


class Refusal(Exception):
    """Ends a request with a problem as its answer."""

    def __init__(self, told: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(told.detail)
        self.problem = told
        self.headers = dict(headers or {})


def problem_of(error: Exception) -> Problem:
    """What to tell about an error. One that nobody foresaw is logged here."""
    match error:
        case Refusal():
            return error.problem
        case InvalidInput() | InvalidSetting() | RequestValidationError():
            return _with_fields(error)
        case StoreUnavailable():
            _outages.log(logger, logging.WARNING, "a request found no database: %s", error)
            return problem(503, "the database cannot be reached", hint="try again in a moment")
        case TraxError() if not isinstance(error, StoreError):
            return problem(_status(error), str(error))
        case HTTPException():
            return problem(error.status_code, FROM_THE_FRAMEWORK.get(error.status_code, str(error.detail)))
        case _:
            return _masked(error)


def as_json(told: Problem, headers: Mapping[str, str] | None = None) -> Response:
    body = _PROBLEM.dump_json(told, exclude_none=True)
    extra = {"Retry-After": "5"} if told.status == 503 else {}  # noqa: PLR2004
    return Response(body, told.status, {**extra, **(headers or {})}, MEDIA_TYPE)


def _masked(error: Exception) -> Problem:
    logged_as = uuid4().hex[:12]
    logger.error("a request failed; the answer names it as %s", logged_as, exc_info=error)
    return problem(
        500,
        "the server met something that was not foreseen",
        hint=f"the server's log has it under {logged_as}",
        logged_as=logged_as,
    )


def _status(error: TraxError) -> int:
    match error:
        case NotFound() | UnknownTrain():
            return 404
        case Conflict():
            return 409
        case _:
            return 422


def _with_fields(error: InvalidInput | InvalidSetting | RequestValidationError) -> Problem:
    """Every wrong field by its path: in the input of a train, by the name of a setting, in the request."""
    match error:
        case InvalidInput():
            said, code = "its type refuses this input", "invalid_input"
            if isinstance(error, InvalidArgument):
                said, code = str(error), None
            found = [FieldProblem(one.path, one.message) for one in error.errors]
        case InvalidSetting():
            said, code = str(error), "invalid_setting"
            found = [FieldProblem(name, why) for name, why in error.reasons.items()]
        case RequestValidationError():
            said, code = "the request has fields that cannot be used", None
            each: list[Any] = list(error.errors())
            found = [_field_problem(one) for one in each]
    return problem(422, said, code=code, fields=tuple(found))


def _field_problem(one: Any) -> FieldProblem:
    """What is wrong with a field of the request, with its value where that stood in the address."""
    if one["type"] == "json_invalid":
        return FieldProblem("body", f"not JSON that can be read here: {one['ctx']['error']}")
    is_in_address = one["loc"][0] in {"query", "path"} and one["type"] != "missing"
    message = f"{one['msg']} (got {shown(one['input'])})" if is_in_address else one["msg"]
    return FieldProblem(".".join(map(str, one["loc"])), message)


_PROBLEM: Final = TypeAdapter(Problem)
