"""One set of routes for all web applications of a process: FastAPI needs half a second to work them out."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from fastapi import FastAPI
from tests.support.web_app import COST_LOG2
from typing_extensions import override

from trax.web import api, application, passwords
from trax.web.api.document import document

if TYPE_CHECKING:
    from collections.abc import Generator

    from fastapi import APIRouter
    from starlette.routing import BaseRoute


class SharedRoutes(FastAPI):
    """Includes what another application has included already, instead of a router like it."""

    included: ClassVar[dict[int, tuple[APIRouter, BaseRoute]]] = {}

    @override
    def include_router(self, router: APIRouter, **options: Any) -> None:
        if id(router) not in self.included:
            super().include_router(router, **options)
            self.included[id(router)] = router, self.router.routes[-1]
        else:
            self.router.routes.append(self.included[id(router)][1])


class SharedDocuments:
    """Builds the OpenAPI document of applications that have the same title and routes once."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, int], dict[str, Any]] = {}

    def __call__(self, web: FastAPI) -> dict[str, Any]:
        if web.openapi_schema is None:
            key = web.title, len(web.routes)
            web.openapi_schema = self._documents.get(key)
            self._documents[key] = document(web)
        return document(web)


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Generator[None]:
    """Take the cost of the tests' hashes for the cost of today: hashing again takes most of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "COST_LOG2", COST_LOG2)
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_routes() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "FastAPI", SharedRoutes)
        patch.setattr(application, "document", SharedDocuments())
        patch.setattr(api, "router", cache(api.router))
        patch.setitem(cast("Any", sys.modules), "sniffio", None)  # or httpx2 looks for it at each request
        yield
