"""Any address, body or form gets a documented response, and never a 500."""

from __future__ import annotations

import json
import logging
import re
from base64 import urlsafe_b64encode
from datetime import timedelta
from functools import cache
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from pydantic import BaseModel
from tests.support.hostile import BODIES, IN_ADDRESSES, IN_BODIES, IN_THE_WEB, MARKUP, sample
from tests.support.html_reader import Page
from tests.support.web_app import OPERATOR, browser, railway, web_app

from trax import Retry, Trax, current, every, junction
from trax.app.queue import Enqueuer
from trax.settings import Settings
from trax.web import Access, create
from trax.web.api.bodies import JsonRoute
from trax.web.masking import HIDDEN

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from typing import TypeAlias

    import httpx2
    from tests.support.web_app import WebApp

    Some: TypeAlias = Callable[[object, Sequence[Any]], list[Any]]

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
MOST_PAGES = 80
LINK = re.compile(r'<a [^>]*?href="(/[^"#]*)')
DIALECTS = pytest.mark.parametrize("url", ["memory", "postgresql"], indirect=True)
THERE = {"external_id": "ada", "metadata_id": "1", "entry_id": "1", "dead_letter_id": "1", "audit_id": "1"}
FILTERS = {
    "/trains": ("text",),
    "/manifests": ("text", "train", "group", "schedule_type", "enabled", "before", "after"),
    "/groups": ("after",),
    "/queue": ("status", "train", "manifest", "group", "origin", "before", "after"),
    "/executions": ("state", "train", "manifest", "group", "external_id", "within", "before", "after"),
    "/dead-letters": ("status", "manifest", "fingerprint", "before"),
    "/logs": ("text", "level", "execution", "before", "after"),
    "/audit": ("actor", "action", "target", "before"),
    "/trains/serve_coffee": ("like", "as"),
    "/executions/1": ("lines",),
    "/workers": ("after",),
    "/login": ("next",),
    "/": ("by",),
}
FIELDS = {
    "/queue": ("ids",),
    "/executions": ("ids",),
    "/executions/1": ("action",),
    "/dead-letters": ("ids", "fingerprint", "limit", "note", "action"),
    "/groups": ("ids", "action"),
    "/groups/bar": ("max_active_jobs", "priority", "action"),
    "/manifests": ("ids", "action"),
    "/manifests/ada": ("action", "delay"),
    "/settings": ("name", "value", "action"),
    "/settings/yours": ("shown", "theme", "zone"),
    "/audit": ("id", "action"),
    "/trains/serve_coffee": ("in:customer", "in:cups", "priority", "delay", "group", "like", "json", "add"),
}
GIVEN = {
    "/dead-letters": {"action": "requeue", "confirmed": "yes"},
    "/queue": {"confirmed": "yes"},
    "/executions": {"confirmed": "yes"},
    "/executions/1": {"action": "rerun"},
    "/groups": {"action": "trigger"},
    "/groups/bar": {"action": "save"},
    "/manifests": {"action": "trigger"},
    "/manifests/ada": {"action": "trigger"},
    "/settings": {"action": "save", "name": "local_worker_count"},
    "/audit": {"action": "undo", "confirmed": "yes"},
    "/trains/serve_coffee": {"action": "queue", "in:customer": "Ada"},
}


@pytest.fixture
async def room(url: str) -> AsyncGenerator[WebApp]:
    async with web_app(url) as opened:
        await opened.app.queue("serve_coffee", {"customer": "Ada", "cups": 10})
        await opened.harness.run_until_idle()
        yield opened


async def asked(room: WebApp, method: str, path: str, **more: Any) -> httpx2.Response:
    answer = await room.api.request(method, path, **more)
    documented = operation_at(room, method, path)["responses"]
    assert str(answer.status_code) in {*documented, "404", "405"}, (method, path[:200], more, answer.text)
    return answer


def operations(room: WebApp) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every operation but the one whose answer has no end."""
    for path, methods in room.web.openapi()["paths"].items():
        yield from ((method.upper(), path, each) for method, each in methods.items() if "events" not in path)


def operation_at(room: WebApp, method: str, path: str) -> dict[str, Any]:
    """What is documented of the operation that such a path is meant for."""
    wanted = path.partition("?")[0]
    for known, template, operation in operations(room):
        if known == method and pattern_of(template).fullmatch(wanted):
            return operation
    raise AssertionError((method, path))


@cache
def pattern_of(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{\w+\}", ".*", template), re.DOTALL)


def filled(path: str, value: str | None = None) -> str:
    def fill(found: re.Match[str]) -> str:
        name = found[1]
        otherwise = "serve_coffee" if "/trains/" in path else "bar"
        return value if value is not None else THERE.get(name, otherwise)

    return re.sub(r"\{(\w+)\}", fill, path)


@pytest.fixture
def some(url: str) -> Some:
    """Some of the values for each place, other ones on the other dialect."""

    def of(place: object, values: Sequence[Any]) -> list[Any]:
        return sample(f"{url.partition(':')[0]} {place}", values, IN_THE_WEB)

    return of


@DIALECTS
async def test_no_path_breaks_anything(room: WebApp, some: Some) -> None:
    for method, path, _ in operations(room):
        for value in some((method, path), IN_ADDRESSES) if "{" in path else ():
            body: dict[str, Any] = {} if method == "GET" else {"content": b"{}", "headers": JSON}
            answer = await asked(room, method, filled(path, value), **body)

            assert answer.status_code in {200, 201, 204, 404, 405, 409, 422}


@DIALECTS
async def test_no_query_breaks_anything(room: WebApp, some: Some) -> None:
    for method, path, operation in operations(room):
        for name in (one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"):
            for value in some((method, path, name), IN_ADDRESSES):
                answer = await asked(room, method, f"{filled(path)}?{name}={value}")

                if answer.status_code == 422:
                    assert answer.json()["fields"][0]["path"] == f"query.{name}"
            answer = await asked(room, method, f"{filled(path)}?{name}=1&{name}=%00")
            assert answer.status_code in {200, 404, 422}


@DIALECTS
async def test_no_body_breaks_anything(room: WebApp, some: Some) -> None:
    for method, path, operation in operations(room):
        for body in some((method, path), BODIES) if "requestBody" in operation else ():
            await asked(room, method, filled(path), content=body, headers=JSON)
    await room.get("/settings")


@DIALECTS
async def test_no_field_of_a_body_breaks_anything(room: WebApp, some: Some) -> None:
    schemas = room.web.openapi()["components"]["schemas"]
    for method, path, operation in operations(room):
        if "requestBody" not in operation:
            continue
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        schema = next((one for one in schema.get("anyOf", ()) if "$ref" in one), schema)
        known: dict[str, Any] = (
            schemas[schema["$ref"].rpartition("/")[2]]["properties"] if "$ref" in schema else {}
        )
        for name in known or Settings.model_fields:
            for value in some((method, path, name), IN_BODIES):
                body = {**({"input": {"customer": "Ada"}} if "/trains/" in path else {}), name: value}
                await asked(room, method, filled(path), content=json.dumps(body), headers=JSON)
    assert (await room.api.get("/health")).status_code == 200


@pytest.mark.parametrize("body", [body for body in BODIES if b"[[[" in body or b"\\ud" in body])
async def test_unreadable_json_is_reported_with_the_reason(body: bytes) -> None:
    async with web_app("memory://") as room:
        answer = await room.api.post("/api/v1/trains/serve_coffee/queue", content=body, headers=JSON)

        told = answer.json()
        assert (answer.status_code, told["fields"][0]["path"]) == (422, "body")
        assert re.search("nested more than 100 levels deep|lone surrogate", told["fields"][0]["message"])


def test_every_route_of_the_api_reads_json_within_the_same_bounds() -> None:
    def routes(router: Any) -> Iterator[Any]:
        for route in router.routes:
            inner = getattr(route, "original_router", None)
            yield from routes(inner) if inner is not None else [route]

    found = [route for route in routes(create(railway("memory://"))) if getattr(route, "body_field", None)]

    assert len(found) > 10
    assert all(isinstance(route, JsonRoute) for route in found)


class OwnInit(BaseModel):
    """A model that is made by its own code: `self` among its keys would be given to it twice."""

    cups: int = 1

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)


@pytest.mark.parametrize("verb", ["queue", "run"])
async def test_an_input_may_have_a_key_named_self(verb: str) -> None:
    app = Trax("memory://")

    @app.train
    def brew(value: OwnInit) -> int:
        return value.cups

    async with web_app("memory://", app=app) as room:
        answer = await room.api.post(f"/api/v1/trains/brew/{verb}", json={"input": {"self": 1}})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")


async def test_a_setting_named_self_is_unknown(room: WebApp) -> None:
    told = await room.patch("/settings", {"self": 1, "live": 2}, status=422)

    assert [field["path"] for field in told["fields"]] == ["self", "live"]


@pytest.mark.parametrize("verb", ["queue", "run"])
async def test_the_mark_of_a_hidden_value_is_no_value(room: WebApp, verb: str) -> None:
    sent = {"input": {"customer": "Ada", "password": HIDDEN}}
    before = await room.app.work_queue.count(), await room.app.executions.count()

    told = await room.post(f"/trains/serve_coffee/{verb}", sent, status=422)

    assert [field["path"] for field in told["fields"]] == ["password"]
    assert (await room.app.work_queue.count(), await room.app.executions.count()) == before


async def test_a_group_that_is_not_there_is_not_found_by_any_verb(room: WebApp) -> None:
    assert (await room.post("/groups/nobody/trigger", status=404))["detail"] == "there is no group 'nobody'"
    assert (await room.post("/groups/nobody/cancel", status=404))["detail"] == "there is no group 'nobody'"


@DIALECTS
async def test_no_filter_of_a_page_breaks_it(room: WebApp, some: Some) -> None:
    for path, names in FILTERS.items():
        for name in names:
            for value in (*some((path, name), IN_ADDRESSES), f"1&{name}=2"):
                answer = await room.api.get(f"{path}?{name}={value}")

                assert answer.status_code in {200, 404, 422}, (path, name, value, answer.text[:2000])
                assert not has_markup(answer), (path, name, value)


@DIALECTS
async def test_no_address_of_a_page_breaks_it(room: WebApp, some: Some) -> None:
    nouns = ("trains", "manifests", "groups", "queue", "executions", "dead-letters", "static")
    for path in (f"/{noun}/{value}" for noun in nouns for value in some(noun, IN_ADDRESSES)):
        answer = await room.api.get(path)

        assert answer.status_code in {200, 404, 405, 422}, (path, answer.text[:2000])
        assert not has_markup(answer), path


@DIALECTS
async def test_no_field_of_a_form_breaks_its_page(url: str, some: Some) -> None:
    deep = quote(b"[" * 100_000)
    access = Access(allow_anonymous=True)
    async with web_app(url, access=access) as room, browser(room.web) as reader:
        token = dict(Page(await reader.get("/settings")).forms[0].fields)["csrf_token"]
        for path, names in FIELDS.items():
            for name in names:
                for value in some((path, name), (*IN_ADDRESSES, deep, "%5B" * 500, HIDDEN)):
                    given = {"as": "json"} if name == "json" else {}
                    given |= GIVEN.get(path, {}) | {"csrf_token": token}
                    pairs = [f"{quote(key)}={quote(said)}" for key, said in given.items() if key != name]
                    body = "&".join([*pairs, f"{quote(name)}={value}"])
                    answer = await reader.post(path, content=body, headers=FORM)
                    where = (path, name, value[:100], answer.status_code)
                    assert answer.status_code in {200, 303, 404, 422}, where
                    assert not has_markup(answer), where


@DIALECTS
async def test_markup_in_any_stored_text_is_escaped_on_every_page(url: str) -> None:
    """Each page that a link leads to, and each filter that a link has."""
    app = Trax(url)

    @junction
    async def serve(name: str) -> str:
        logging.getLogger("bar" + MARKUP).warning(MARKUP)
        run = current()
        assert run
        await run.progress(0.5, MARKUP)
        if name.endswith("!"):
            raise type(MARKUP, (ValueError,), {})(MARKUP)
        return name

    train = app.train(
        "serve<script>alert(1)</script>", serve, retry=Retry(max_retries=0), group="bar" + MARKUP
    )
    app.schedule(train, "ada" + MARKUP, MARKUP, every(hours=1), group="bar" + MARKUP)
    async with web_app(url, app=app) as room:
        await app.queue(train, MARKUP + "!")
        await room.harness.run_until_idle()
        await room.harness.cycle("run_log")
        await app.queue(train, MARKUP, unique=MARKUP, delay=timedelta(hours=1))
        reason = {b"X-Reason": MARKUP.encode()}
        note = {"ids": [1], "note": MARKUP}
        assert (
            await room.api.post("/api/v1/dead-letters/acknowledge", json=note, headers=reason)
        ).status_code == 200

        seen, wanted, shown = set[str](), ["/"], 0
        while wanted and len(seen) < MOST_PAGES:
            path = wanted.pop()
            if path in seen:
                continue
            seen.add(path)
            page = await room.api.get(path)
            assert (page.status_code, has_markup(page)) == (200, False), path
            shown += "&lt;img/src" in page.text
            wanted += [unescape(link) for link in LINK.findall(page.text)]

    assert len(seen) > 20
    assert shown > 10


def has_markup(answer: httpx2.Response) -> bool:
    """Whether a page has a tag that came from outside."""
    is_page = answer.headers.get("content-type", "").startswith("text/html")
    return is_page and any(tag in answer.text for tag in ("<img/src", "<svg onload", "<script>alert"))


@pytest.mark.parametrize(("fields", "status"), [(5_000, 200), (5_001, 413)])
async def test_a_form_has_a_limited_number_of_fields(room: WebApp, fields: int, status: int) -> None:
    body = "&".join(["ids=1"] * fields)

    answer = await room.api.post("/queue", content=body, headers={"Content-Type": FORM["Content-Type"]})

    assert answer.status_code == status


@pytest.mark.parametrize(
    "cookie", [b"[" * 50_000, b"\xff\xff", b'{"text": "\\ud800", "is_good": 1, "path": 2}']
)
async def test_a_cookie_of_any_content_cannot_break_a_page(cookie: bytes) -> None:
    async with web_app("memory://") as room:
        cookies = f"trax_message={urlsafe_b64encode(cookie).decode()}; trax_session=a.b.c.d"
        answer = await room.api.get("/groups", headers={"Cookie": cookies})

    assert answer.status_code == 200


async def test_a_reason_of_any_bytes_is_kept_as_text(room: WebApp) -> None:
    async with browser(room.web, token=OPERATOR) as api:
        for reason in (b"\x80\xff", b"x" * 10_000, "\u202e".encode()):
            answer = await api.patch(
                "/api/v1/groups/bar", json={"priority": 3}, headers={b"X-Reason": reason}
            )
            assert answer.status_code == 200


async def test_a_page_shows_marks_of_direction_and_does_not_obey_them(room: WebApp) -> None:
    name = "Ada\u202eadA\x9b"
    await room.app.queue("serve_coffee", {"customer": name})
    await room.harness.run_until_idle()
    await room.harness.cycle("run_log")
    run = next(
        one
        for one in await room.app.executions.list()
        if one.input == {"customer": name, "cups": 1, "password": None}
    )

    pages = [(await room.api.get(path)).text for path in (f"/executions/{run.id}", "/logs")]
    form = (await room.api.get(f"/trains/serve_coffee?like={run.id}")).text

    for page in pages:
        assert not set(page) & set("\u202e\x9b")
        assert r"Ada\u202eadA\x9b" in page
    assert f'value="{name}"' in form


async def test_an_error_is_shown_without_marks_of_direction(room: WebApp) -> None:
    told = (await room.api.get("/api/v1/groups?a%E2%80%AEb=1")).json()

    assert [field["path"] for field in told["fields"]] == [r"query.a\u202eb"]


async def test_half_of_a_pair_in_a_row_is_shown_as_a_question_mark(room: WebApp) -> None:
    """Written by somebody who had no code to check it; its worker refuses it, and people look at it."""
    value = {"customer": "a\ud800b"}
    (entry,) = await Enqueuer(room.app.context).enqueue("serve_coffee", [value], {}, has_code=False)

    shown = [(await room.get(f"/queue/{entry.id}"))["input"]]
    await room.harness.run_until_idle()
    letters = (await room.get("/dead-letters", full=True))["items"]

    assert shown == [{"customer": "a?b"}]
    assert {"customer": "a?b"} in [letter["input"] for letter in letters]
    assert (await room.api.get(f"/queue/{entry.id}")).status_code == 200
