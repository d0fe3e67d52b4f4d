"""The OpenAPI document: what FastAPI knows of the handlers, and the problems they may answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

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


async def get_document(request: Request) -> Response:
    """The document, with the place where the application is mounted as its server."""
    whole, mounted_at = request.app.openapi(), request.scope.get("root_path", "").rstrip("/")
    return JSONResponse({**whole, "servers": [{"url": mounted_at}]} if mounted_at else whole)


def operations(web: FastAPI) -> dict[str, dict[str, Any]]:
    """What is documented of each operation, by the name of its handler."""
    paths = web.openapi()["paths"].values()
    return {each["operationId"]: each for methods in paths for each in methods.values()}


def _complete(operation: dict[str, Any], path: str, method: str) -> None:
    answers: dict[str, Any] = operation["responses"]
    if path == "/health/live":
        return
    answers.pop("422", None)
    problems = [*ALWAYS, *([404] if "{" in path or "/why" in path else ())]
    if path.startswith("/api/"):
        problems.append(422)
    if "requestBody" in operation:
        problems += [400, 415]
    if method in CHANGING:
        problems += [409, 413]
        operation["parameters"] = [*operation.get("parameters", ()), REASON]
    answers |= {str(status): _answer(status) for status in sorted(problems)}


def _answer(status: int) -> dict[str, Any]:
    schema = {"$ref": REFERENCE.format(model="Problem")}
    return {"description": f"{TITLES[status]} ({CODES[status]})", "content": {MEDIA_TYPE: {"schema": schema}}}
