"""The OpenAPI document: FastAPI's schema of the handlers, plus the problems they may return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trax.web.problems import CODES, MEDIA_TYPE, TITLES, Problem

if TYPE_CHECKING:
    from fastapi import FastAPI

SCHEMA_REFERENCE: Final = "#/components/schemas/{model}"
COMMON_PROBLEMS: Final = (401, 403, 503)
CHANGE_METHODS: Final = ("post", "put", "patch", "delete")
TOKEN: Final = {"token": {"type": "http", "scheme": "bearer"}}
REASON: Final = {
    "name": "X-Reason",
    "in": "header",
    "required": False,
    "description": "Reason for the change, recorded in the audit log.",
    "schema": {"type": "string", "maxLength": 2000},
}


def document(web: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document; cached after the first call."""
    if web.openapi_schema is None:
        schema = get_openapi(
            title=web.title, version=web.version, description=web.description, routes=web.routes
        )
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        problem = TypeAdapter(Problem).json_schema(mode="serialization", ref_template=SCHEMA_REFERENCE)
        schemas |= problem.pop("$defs", {}) | {"Problem": problem}
        schema["components"]["securitySchemes"] = TOKEN
        schema["security"] = [{"token": []}, {}]
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                _complete(operation, path, method)
        web.openapi_schema = schema
    return web.openapi_schema


async def get_document(request: Request) -> Response:
    """The OpenAPI document, with the mount point as its server."""
    document, mounted_at = request.app.openapi(), request.scope.get("root_path", "").rstrip("/")
    return JSONResponse({**document, "servers": [{"url": mounted_at}]} if mounted_at else document)


def operations(web: FastAPI) -> dict[str, dict[str, Any]]:
    """The documented operations by operation id, which is the handler's name."""
    paths = web.openapi()["paths"].values()
    return {each["operationId"]: each for methods in paths for each in methods.values()}


def _complete(operation: dict[str, Any], path: str, method: str) -> None:
    responses: dict[str, Any] = operation["responses"]
    if path == "/health/live":
        return
    responses.pop("422", None)
    problems = [*COMMON_PROBLEMS, *([404] if "{" in path or "/why" in path else ())]
    if path.startswith("/api/"):
        problems.append(422)
    if "requestBody" in operation:
        problems += [400, 415]
    if method in CHANGE_METHODS:
        problems += [409, 413]
        operation["parameters"] = [*operation.get("parameters", ()), REASON]
    responses |= {str(status): _problem_response(status) for status in sorted(problems)}


def _problem_response(status: int) -> dict[str, Any]:
    schema = {"$ref": SCHEMA_REFERENCE.format(model="Problem")}
    return {"description": f"{TITLES[status]} ({CODES[status]})", "content": {MEDIA_TYPE: {"schema": schema}}}
