"""The OpenAPI document: what FastAPI knows of the handlers, and the problems they may answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from trax.web.problems import CODES, MEDIA_TYPE, TITLES, Problem

if TYPE_CHECKING:
    from fastapi import FastAPI

REFERENCE: Final = "#/components/schemas/{model}"
ALWAYS: Final = (401, 403, 503)
CHANGING: Final = ("post", "put", "patch", "delete")
TOKEN: Final = {"token": {"type": "http", "scheme": "bearer"}}
REASON: Final = {
    "name": "X-Reason",
    "in": "header",
    "required": False,
    "description": "Why; it stands in the audit.",
    "schema": {"type": "string", "maxLength": 2000},
}


def document(web: FastAPI) -> dict[str, Any]:
    """Made once, when it is first asked for."""
    if web.openapi_schema is None:
        made = get_openapi(
            title=web.title, version=web.version, description=web.description, routes=web.routes
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        whole = TypeAdapter(Problem).json_schema(mode="serialization", ref_template=REFERENCE)
        schemas |= whole.pop("$defs", {}) | {"Problem": whole}
        made["components"]["securitySchemes"] = TOKEN
        made["security"] = [{"token": []}, {}]
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                _complete(operation, path, method)
        web.openapi_schema = made
    return web.openapi_schema


def _complete(operation: dict[str, Any], path: str, method: str) -> None:
    answers: dict[str, Any] = operation["responses"]
    if path == "/health/live":
        return
    is_refusable = answers.pop("422", None) is not None or "/why" in path
    problems = [*ALWAYS, *([404] if "{" in path or "/why" in path else ()), *([422] if is_refusable else ())]
    if "requestBody" in operation:
        problems.append(400)
    if method in CHANGING:
        problems += [409, 413]
        operation["parameters"] = [*operation.get("parameters", ()), REASON]
    answers |= {str(status): _answer(status) for status in sorted(problems)}


def _answer(status: int) -> dict[str, Any]:
    schema = {"$ref": REFERENCE.format(model="Problem")}
    return {"description": f"{TITLES[status]} ({CODES[status]})", "content": {MEDIA_TYPE: {"schema": schema}}}
