"""Problems (RFC 9457): errors of requests with a code, the invalid fields and a hint.

Only errors meant for clients are sent. Any other error is logged, and the response has an id to find it.
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
    format_value,
)
from trax.escapes import visible_text
from trax.worker.capture import LogLimit

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)
_outages = LogLimit()

MEDIA_TYPE: Final = "application/problem+json"
TITLES: Final = {
    400: "bad request",
    401: "authentication required",
    403: "not allowed",
    404: "not found",
    405: "method not allowed",
    408: "request timeout",
    409: "conflict",
    413: "request too large",
    415: "unsupported media type",
    421: "misdirected request",
    422: "invalid request",
    429: "too many requests",
    500: "internal error",
    503: "service unavailable",
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
    421: "misdirected",
    422: "invalid",
    429: "too_many_requests",
    500: "internal",
    503: "unavailable",
}
FRAMEWORK_DETAILS: Final = {
    404: "no such path",
    405: "this path does not support this method",
}
"""Replaces the framework's details, which only repeat the status."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """An invalid field. `path` locates it: `body.ids.0`, `query.limit`, `table`."""

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error response: `code` is for programs, the rest for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str | None = None
    fields: tuple[FieldProblem, ...] = ()
    id: str | None = None
    """Id of the log line with the details."""


def problem(
    status: int,
    detail: str,
    *,
    code: str | None = None,
    hint: str | None = None,
    fields: tuple[FieldProblem, ...] = (),
    logged_as: str | None = None,
) -> Problem:
    """Build a problem, with control characters in its texts made visible."""
    code = code or CODES.get(status, "error")
    visible = (FieldProblem(visible_text(each.path), visible_text(each.message)) for each in fields)
    return Problem(
        type=f"urn:trax:problem:{code}",
        title=TITLES.get(status, "request failed"),
        status=status,
        code=code,
        detail=visible_text(detail),
        hint=None if hint is None else visible_text(hint),
        fields=tuple(visible),
        id=logged_as,
    )


class Refusal(Exception):
    """Ends a request with a problem as its response."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = dict(headers or {})


def problem_of(error: Exception) -> Problem:
    """Convert an exception to a problem; an unexpected one is logged here."""
    match error:
        case Refusal():
            return error.problem
        case InvalidInput() | InvalidSetting() | RequestValidationError():
            return _with_fields(error)
        case StoreUnavailable():
            _outages.log(logger, logging.WARNING, "dashboard: the database is unavailable: %s", error)
            return problem(503, "the database is unavailable", hint="try again in a moment")
        case TraxError() if not isinstance(error, StoreError):
            return problem(_status(error), str(error))
        case HTTPException():
            return problem(error.status_code, FRAMEWORK_DETAILS.get(error.status_code, str(error.detail)))
        case _:
            return _internal_problem(error)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    body = _PROBLEM.dump_json(problem, exclude_none=True)
    extra = {"Retry-After": "5"} if problem.status == 503 else {}  # noqa: PLR2004
    return Response(body, problem.status, {**extra, **(headers or {})}, MEDIA_TYPE)


def _internal_problem(error: Exception) -> Problem:
    logged_as = uuid4().hex[:12]
    logger.error(
        "dashboard: a request failed with an unexpected error; problem id %s", logged_as, exc_info=error
    )
    return problem(
        500,
        "an unexpected error occurred",
        hint=f"details are in the server's log under id {logged_as}",
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
    """A problem with its invalid fields: of a train's input, of the settings, or of the request."""
    match error:
        case InvalidInput():
            detail, code = "the input does not match its type", "invalid_input"
            if isinstance(error, InvalidArgument):
                detail, code = str(error), None
            fields = [FieldProblem(each.path, each.message) for each in error.errors]
        case InvalidSetting():
            detail, code = str(error), "invalid_setting"
            fields = [FieldProblem(name, why) for name, why in error.reasons.items()]
        case RequestValidationError():
            detail, code = "the request has invalid fields", None
            errors: list[Any] = list(error.errors())
            fields = [_field_problem(each) for each in errors]
    return problem(422, detail, code=code, fields=tuple(fields))


def _field_problem(error: Any) -> FieldProblem:
    """The error of one field of the request, with its value if that is part of the URL."""
    if error["type"] == "json_invalid":
        return FieldProblem("body", f"invalid JSON: {error['ctx']['error']}")
    is_in_address = error["loc"][0] in {"query", "path"} and error["type"] != "missing"
    message = f"{error['msg']} (got {format_value(error['input'])})" if is_in_address else error["msg"]
    return FieldProblem(".".join(map(str, error["loc"])), message)


_PROBLEM: Final = TypeAdapter(Problem)
