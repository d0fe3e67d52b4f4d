"""A small app and its dashboard and API, called as a program or a browser calls them."""

from __future__ import annotations

import logging
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import BaseModel

from trax import Group, Retry, Trax, every
from trax.testing import Harness
from trax.web import Access, Role, Token, User, create
from trax.web.access import hash_password

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from fastapi import FastAPI

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
OPERATOR = "an operator's token"
VIEWER = "a viewer's long token"
PASSWORD = "correct horse battery staple"
COST_LOG2 = 4
HASH = hash_password(PASSWORD, cost_log2=COST_LOG2)  # a test waits for no password
BASE = "http://127.0.0.1"


class Order(BaseModel):
    customer: str
    cups: int = 1
    password: str | None = None


def railway(url: str, **settings: Any) -> Trax:
    app = Trax(url, **settings)

    @app.train(retry=Retry(max_attempts=0))
    def serve_coffee(order: Order) -> str:
        if order.cups > 9:
            raise ValueError(f"{order.cups} cups are too many")
        logging.getLogger("bar").warning("coffee for %s", order.customer)
        return f"{order.customer} has {order.cups}"

    app.schedule(
        serve_coffee, "ada", Order(customer="Ada"), every(hours=1), group=Group("bar", max_active_jobs=3)
    )
    app.schedule(serve_coffee, "by/night", Order(customer="Bob"), every(hours=1), group="bar")
    return app


def access(**more: Any) -> Access:
    """Two programs and two people, an operator and a viewer of each kind."""
    tokens = {"deploy": Token(OPERATOR, Role.OPERATOR), "grafana": Token(VIEWER, Role.VIEWER)}
    users = {"olga": User(HASH, Role.OPERATOR), "vera": User(HASH, Role.VIEWER)}
    how: dict[str, Any] = {"tokens": tokens, "users": users, **more}
    return Access(**how)


def browser(
    web: Any, *, token: str | None = None, base: str = BASE, peer: str = "127.0.0.1", **more: Any
) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else more.pop("headers", {})
    transport = httpx2.ASGITransport(app=web, raise_app_exceptions=False, client=(peer, 1234))
    return httpx2.AsyncClient(transport=transport, base_url=base, headers=headers, **more)


async def log_in(client: httpx2.AsyncClient, name: str, password: str = PASSWORD) -> str:
    """Log in as a person does; gives the token of the pages that are shown then."""
    form = {"name": name, "password": password, "csrf_token": await csrf_token_on(client, "/login")}
    answer = await client.post("/login", data=form)
    assert answer.status_code == 303, answer.text
    return await csrf_token_on(client, "/")


async def csrf_token_on(client: httpx2.AsyncClient, path: str) -> str:
    page = (await client.get(path)).text
    found = re.search(r'(?:name="csrf_token"\s+value|name="csrf-token"\s+content)="([0-9a-f]+)"', page)
    assert found, page
    return found[1]


class WebApp:
    """The railway with its clock, and an operator's program that asks about it."""

    def __init__(self, harness: Harness, web: FastAPI, api: httpx2.AsyncClient) -> None:
        self.harness = harness
        self.app = harness.app
        self.web = web
        self.api = api

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.api.get(f"/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, *, status: int = 200, reason: str | None = None) -> Any:
        headers = {} if reason is None else {b"X-Reason": reason.encode()}
        answer = await self.api.post(f"/api/v1{path}", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def patch(self, path: str, body: Any, *, status: int = 200) -> Any:
        answer = await self.api.patch(f"/api/v1{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()


@asynccontextmanager
async def web_app(url: str, *, app: Trax | None = None, **options: Any) -> AsyncGenerator[WebApp]:
    async with Harness(app or railway(url), now=NOON) as harness:
        options.setdefault("access", access())
        web = create(harness.app, **options)
        async with browser(web, token=OPERATOR) as api:
            yield WebApp(harness, web, api)


def routes_of(web: FastAPI) -> Iterator[tuple[str, str]]:
    """Every method and path that can be asked for, with something plausible in the place of parameters."""
    for method, path in _walked(web.routes, ""):
        yield method, "/".join("1" if "{" in word else word for word in path.split("/"))


def _walked(routes: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _walked(inner.routes, prefix + route.include_context.prefix)
        elif getattr(route, "methods", None):
            yield from ((method, prefix + route.path) for method in route.methods)
