"""Requests that the API refuses: unknown parameters, methods and types."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.support.web_app import (
    BASE,
    OPERATOR,
    Order,
    access,
    browser,
    railway,
    routes_of,
    web_app,
)

from trax import every, junction
from trax.web import create

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.support.web_app import WebApp

JSON = "application/json"
PROBLEM = "application/problem+json"
TAKING_BODIES = (
    ("PATCH", "/groups/bar"),
    ("PATCH", "/settings"),
    ("POST", "/trains/serve_coffee/queue"),
    ("POST", "/manifests/ada/trigger"),  # may do without a body
    ("POST", "/audit/1/undo"),
)
LISTS = (
    "/manifests",
    "/groups",
    "/queue",
    "/executions",
    "/executions/1/logs",
    "/dead-letters",
    "/dead-letters/groups",
    "/logs",
    "/workers",
    "/audit",
    "/stats/durations",
    "/stats/failing",
    "/stats/groups",
)
NAMED = ("/api/v1/manifests/", "/api/v1/groups/")
NAMING = ("GET", "DELETE", "PATCH")  # a name may have slashes: what follows it is part of one for these
ROUTES = sorted(
    (method, path)
    for method, path in routes_of(create(railway("memory://"), access=access()))
    if path.startswith("/api/v1/")
)


@pytest.fixture
async def room() -> AsyncGenerator[WebApp]:
    async with web_app("memory://") as opened:
        yield opened


def test_all_routes_are_checked() -> None:
    assert len(ROUTES) > 50
    assert {("GET", "/api/v1/events"), ("GET", "/api/v1/openapi.json")} < set(ROUTES)


async def test_an_unknown_query_parameter_is_refused_by_every_route(room: WebApp) -> None:
    for method, path in ROUTES:
        answer = await room.api.request(method, path, params={"nonsense": "1"})

        assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM), (method, path)
        told = answer.json()
        assert (told["code"], told["detail"]) == ("unknown_parameter", "unknown query parameter 'nonsense'")
        assert [field["path"] for field in told["fields"]] == ["query.nonsense"]


async def test_a_misspelt_parameter_is_reported_with_a_suggestion(room: WebApp) -> None:
    told = (await room.api.get("/api/v1/groups?limt=1&aftr=a&limit=5")).json()

    assert told["detail"] == (
        "unknown query parameter 'limt'; did you mean 'limit'?; "
        "unknown query parameter 'aftr'; did you mean 'after'?"
    )
    assert told["hint"] == "known query parameters: after, before, full, limit, total"


async def test_an_operation_without_parameters_explains_that_it_has_none(room: WebApp) -> None:
    told = (await room.api.post("/api/v1/manifests/ada/disable?limit=1")).json()

    assert told["hint"] == "this operation has no query parameters"
    assert (await room.app.manifests.get("ada")).enabled is True


async def test_another_method_is_refused_with_those_that_are_there(room: WebApp) -> None:
    paths = sorted({path for _, path in ROUTES})
    for method, path in product(("PUT", "OPTIONS", "DELETE", "PATCH", "GET", "POST"), paths):
        if (method, path) in ROUTES or (method in NAMING and path.startswith(NAMED)):
            continue
        answer = await room.api.request(method, path)

        assert answer.status_code == 405, (method, path)
        allowed = set(answer.headers["allow"].split(", "))
        assert method not in allowed
        assert {one for one, at in ROUTES if at == path} <= allowed


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/v1/groups/bar", "GET, HEAD, PATCH"),
        ("PUT", "/api/v1/manifests/ada", "DELETE, GET, HEAD"),
        ("PUT", "/api/v1/manifests/ada/enable", "DELETE, GET, HEAD, POST"),
        ("POST", "/api/v1/settings", "GET, HEAD, PATCH"),
        ("HEAD", "/api/v1/queue/cancel", "POST"),
        ("GET", "/api/v1/queue/cancel", "POST"),
        ("DELETE", "/api/v1/queue/1", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
        ("PUT", "/login", "GET, HEAD, POST"),
        ("POST", "/static/live.js", "GET, HEAD"),
    ],
)
async def test_the_methods_of_all_routes_of_a_path_are_named(
    room: WebApp, method: str, path: str, allowed: str
) -> None:
    answer = await room.api.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_the_methods_are_right_where_it_is_mounted() -> None:
    inner = create(railway("memory://"), access=access())
    outer = Starlette(routes=[Mount("/trax", inner)])

    async with browser(outer, token=OPERATOR, base=BASE) as api:
        answer = await api.put("/trax/api/v1/settings")
        document = (await api.get("/trax/api/v1/openapi.json")).json()

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, PATCH")
    assert document["servers"] == [{"url": "/trax"}]


@pytest.mark.parametrize("sent", [None, "text/plain", "application/x-www-form-urlencoded", "text/json"])
async def test_a_body_of_another_type_is_refused(room: WebApp, sent: str | None) -> None:
    headers = {} if sent is None else {"Content-Type": sent}
    for method, path in TAKING_BODIES:
        answer = await room.api.request(method, f"/api/v1{path}", content=b"{}", headers=headers)

        assert (answer.status_code, answer.headers["content-type"]) == (415, PROBLEM)
        assert answer.headers["accept"] == JSON
        assert answer.json()["code"] == "unsupported_media_type"
        assert JSON in answer.json()["detail"]


@pytest.mark.parametrize("sent", [JSON, "application/json; charset=utf-8", "application/merge-patch+json"])
async def test_json_is_read_under_any_of_its_names(room: WebApp, sent: str) -> None:
    answer = await room.api.patch(
        "/api/v1/groups/bar", content=b'{"max_active_jobs": 7}', headers={"Content-Type": sent}
    )

    assert answer.json()["max_active_jobs"] == 7


async def test_a_request_without_a_body_needs_no_content_type(room: WebApp) -> None:
    assert (await room.api.post("/api/v1/manifests/ada/trigger")).status_code == 201


@pytest.mark.parametrize("limit", ["-1", "0", "201", "many"])
async def test_a_limit_that_no_page_can_have_is_refused(room: WebApp, limit: str) -> None:
    for path in LISTS:
        answer = await room.api.get(f"/api/v1{path}", params={"limit": limit})

        told: dict[str, Any] = answer.json()
        assert answer.status_code == 422
        assert told["fields"][0]["path"] == "query.limit"
        assert told["fields"][0]["message"].endswith(f"(got {limit!r})")


HEADED = [
    path for method, path in routes_of(create(railway("memory://"), access=access())) if method == "GET"
]


async def test_head_is_get_without_a_body_wherever_get_is(room: WebApp) -> None:
    """Also for the stream that has no end: its headers come, and then it ends."""
    assert {"/", "/health", "/metrics", "/login", "/api/v1/executions", "/api/v1/events"} < set(HEADED)
    for path in (*HEADED, "/static/live.js", "/static/nothing", "/api/v1/manifests/by%2Fnight"):
        headed = await room.api.head(path)
        assert headed.content == b""
        if path == "/api/v1/events":
            assert headed.headers["content-type"].startswith("text/event-stream")
            continue
        got = await room.api.get(path)

        assert headed.status_code == got.status_code, path
        same = set(got.headers) - {"content-length", "set-cookie"}
        assert {name: headed.headers[name] for name in same} == {name: got.headers[name] for name in same}
        assert "content-length" in headed.headers


async def test_head_needs_the_same_access_as_get(room: WebApp) -> None:
    async with browser(room.web) as stranger:
        answers = [await stranger.head(path) for path in ("/api/v1/executions", "/health", "/health/live")]

    assert [answer.status_code for answer in answers] == [401, 401, 200]


@pytest.mark.parametrize("name", ["a/b", "a/why", "a/trigger", "/", "a//b", "50%2F", "a%b", "ü/é"])
async def test_a_slash_in_a_name_is_part_of_it(name: str) -> None:
    app = railway("memory://")
    coffee = app.trains.get("serve_coffee")
    escaped = quote(name, safe="")

    @junction
    def brew(order: Order) -> str:
        return order.customer

    app.train("brew/double", brew)
    app.schedule(coffee, name, Order(customer="Ada"), every(hours=1), group=f"g/{name}")
    async with web_app("memory://", app=app) as room:
        found = await room.get(f"/manifests/{escaped}")
        await room.get(f"/manifests/{escaped}/why")
        off = await room.post(f"/manifests/{escaped}/disable")
        queued = await room.post(f"/manifests/{escaped}/trigger", status=201)
        group = await room.patch(f"/groups/g%2f{escaped}", {"priority": 7})
        cancelled = await room.post(f"/groups/g%2F{escaped}/cancel")
        train = await room.get("/trains/brew%2Fdouble")
        run = await room.post("/trains/brew%2Fdouble/run", {"input": {"customer": "Ada"}})
        pages = [
            (await room.api.get(path)).status_code
            for path in (f"/manifests/{escaped}", f"/groups/g%2F{escaped}", "/trains/brew%2Fdouble")
        ]
        gone = await room.api.delete(f"/api/v1/manifests/{escaped}")

    assert (found["external_id"], off["enabled"], queued["manifest"]) == (name, False, name)
    assert (group["name"], group["priority"], cancelled) == (f"g/{name}", 7, {"cancelled": [], "skipped": 0})
    assert (train["name"], run["output"]) == ("brew/double", "Ada")
    assert (pages, gone.status_code) == ([200, 200, 200], 204)


async def test_a_slash_in_a_name_stays_where_it_is_mounted() -> None:
    inner = create(railway("memory://"), access=access())
    outer = Starlette(routes=[Mount("/trax", inner)])

    async with browser(outer, token=OPERATOR, base=BASE) as api:
        answers = [await api.get(f"/trax{path}/no%2Fwhy") for path in ("/api/v1/manifests", "/manifests")]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json()["detail"] == "there is no manifest 'no/why'"


async def test_an_escaped_slash_bypasses_no_check(room: WebApp) -> None:
    async with browser(room.web) as stranger:
        for path in ("/static%2F..%2Fapi/v1/executions", "/health%2Flive", "/login%2F", "/%2Flogin"):
            assert (await stranger.get(path)).status_code in {303, 401, 404}
