"""Access to the dashboard by role, and its security headers."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from tests.support.web_app import (
    BASE,
    HASH,
    OPERATOR,
    PASSWORD,
    VIEWER,
    access,
    browser,
    csrf_token_on,
    log_in,
    railway,
    routes_of,
)

from trax.errors import DefinitionError, StoreUnavailable
from trax.web import Access, Role, Token, User, Visitor, create, guard
from trax.web.access import hash_password, hash_token, matches
from trax.web.context import safe_next
from trax.web.responses import HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from fastapi import FastAPI

    from trax import Trax

OPEN = {"/login", "/logout", "/health/live"}
WEB = create(railway("memory://"), access=access())
CHANGES = sorted((method, path) for method, path in routes_of(WEB) if method not in {"GET", "HEAD"})
GUARDED = [(method, path) for method, path in CHANGES if path not in OPEN]
READS = sorted(path for method, path in routes_of(WEB) if method == "GET")


@pytest.fixture
def app() -> Generator[Trax]:
    app = railway("memory://")
    yield app
    app.close()


@pytest.fixture
def web(app: Trax) -> FastAPI:
    return create(app, access=access())


def test_there_are_changes_to_protect() -> None:
    assert ("POST", "/api/v1/settings/reset") in CHANGES
    assert ("DELETE", "/api/v1/manifests/1") in CHANGES
    assert len(CHANGES) > 20


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_changes_need_the_operator_role(method: str, path: str) -> None:
    async with browser(WEB) as unknown, browser(WEB, token=VIEWER) as viewer:
        by_nobody = await unknown.request(method, path)
        by_viewer = await viewer.request(method, path)
    async with browser(WEB, token="a token that nobody has") as stranger:
        by_stranger = await stranger.request(method, path)

    assert by_nobody.status_code in {303, 401}
    assert by_stranger.status_code in {303, 401}
    assert by_viewer.status_code == 403


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_session_changes_nothing_without_the_token_of_our_pages(method: str, path: str) -> None:
    async with browser(WEB) as olga:
        await log_in(olga, "olga")
        without = await olga.request(method, path)
        with_another = await olga.request(method, path, headers={"X-CSRF-Token": "0" * 64})
        from_elsewhere = await olga.request(method, path, headers={"Origin": "https://evil.example"})

    assert (without.status_code, with_another.status_code, from_elsewhere.status_code) == (403, 403, 403)


@pytest.mark.parametrize("path", [path for path in READS if path not in OPEN])
async def test_reading_needs_a_sign_in(path: str) -> None:
    async with browser(WEB) as unknown:
        answer = await unknown.get(path)

    assert answer.status_code in {303, 401}
    assert answer.status_code == 401 or answer.headers["location"].startswith("/login")


@pytest.mark.parametrize(
    "path", ["/", "/login", "/static/trax.css", "/nothing", "/api/v1/nothing", "/health/live"]
)
@pytest.mark.parametrize("token", [None, OPERATOR])
async def test_every_response_has_security_headers(path: str, token: str | None) -> None:
    async with browser(WEB, token=token) as client:
        answer = await client.get(path)

    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "unsafe" not in answer.headers["content-security-policy"]


async def test_a_person_logs_in_changes_something_and_leaves(web: FastAPI) -> None:
    async with browser(web) as olga:
        token = await log_in(olga, "olga")
        changed = await olga.patch(
            "/api/v1/settings", json={"max_active_jobs": 3}, headers={"X-CSRF-Token": token}
        )
        left = await olga.post("/logout", data={"csrf_token": token})
        after = await olga.get("/api/v1/settings")

    assert (changed.status_code, left.status_code, after.status_code) == (200, 303, 401)


async def test_a_viewer_reads_everything_and_changes_nothing(web: FastAPI) -> None:
    async with browser(web) as vera:
        token = await log_in(vera, "vera")
        seen = await vera.get("/api/v1/settings")
        refused = await vera.post("/api/v1/settings/reset", json={}, headers={"X-CSRF-Token": token})

    assert seen.status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (403, "not_operator")


async def test_a_token_of_another_session_is_refused(web: FastAPI) -> None:
    async with browser(web) as one, browser(web) as other:
        await log_in(one, "olga")
        foreign = await log_in(other, "olga")
        refused = await one.post("/api/v1/settings/reset", json={}, headers={"X-CSRF-Token": foreign})

    assert (refused.status_code, refused.json()["code"]) == (403, "csrf")


async def test_a_cookie_is_for_us_alone(web: FastAPI) -> None:
    async with browser(web, base="https://trax.example") as client:
        form = {"name": "olga", "password": PASSWORD, "csrf_token": await csrf_token_on(client, "/login")}
        answer = await client.post("/login", data=form)

    (cookie,) = answer.headers.get_list("set-cookie")
    assert cookie.startswith("__Host-trax_session=")
    assert {"HttpOnly", "Secure", "SameSite=Lax", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))


def test_a_password_is_kept_as_a_hash_only() -> None:
    kept = hash_password("tea", cost_log2=4)

    assert matches("tea", kept)
    assert not matches("coffee", kept)
    assert "tea" not in kept
    assert hash_password("tea", cost_log2=4) != kept


async def test_a_program_needs_no_token_of_our_pages(web: FastAPI) -> None:
    async with browser(web, token=OPERATOR) as program:
        answer = await program.post("/api/v1/manifests/nobody/enable")

    assert answer.status_code == 404


@pytest.mark.parametrize("headers", [{"Origin": BASE}, {"Referer": BASE}, {"Cookie": "any=thing"}])
async def test_where_anybody_may_enter_a_browser_still_needs_the_token(
    app: Trax, headers: dict[str, str]
) -> None:
    web = create(app, access=Access(allow_anonymous=True))
    async with browser(web) as client:
        plain = await client.post("/api/v1/settings/reset", json={})
        led_astray = await client.post("/api/v1/settings/reset", json={}, headers=headers)

    assert plain.status_code == 200
    assert (led_astray.status_code, led_astray.json()["code"]) == (403, "csrf")


async def test_anonymous_visitors_may_be_viewers(app: Trax) -> None:
    async with browser(create(app, access=Access(allow_anonymous=Role.VIEWER))) as client:
        seen = await client.get("/api/v1/settings")
        refused = await client.post("/api/v1/settings/reset", json={})

    assert (seen.status_code, refused.status_code) == (200, 403)


async def test_an_authorize_function_decides_user_and_role(app: Trax) -> None:
    async def authorize(request: Any) -> Visitor | Role | None:
        match request.headers.get("x-user"):
            case "root":
                return Visitor("root", Role.OPERATOR)
            case "guest":
                return Role.VIEWER
            case _:
                return None

    async with browser(create(app, access=Access(authorize=authorize))) as client:
        by_root = await client.patch(
            "/api/v1/settings", json={"max_active_jobs": 3}, headers={"X-User": "root"}
        )
        by_guest = await client.post("/api/v1/settings/reset", json={}, headers={"X-User": "guest"})
        by_nobody = await client.get("/api/v1/settings")
        audit = await client.get("/api/v1/audit", headers={"X-User": "guest"})

    assert (by_root.status_code, by_guest.status_code, by_nobody.status_code) == (200, 403, 401)
    assert [entry["actor"] for entry in audit.json()["items"]] == ["root"]


async def test_a_body_may_not_be_too_large() -> None:
    async with browser(WEB, token=OPERATOR) as program:
        answer = await program.post("/api/v1/queue/cancel", content=b"x" * (1024 * 1024 + 1))

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_an_unexpected_error_is_masked_and_logged(
    web: FastAPI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(web.state.context.app.groups, "page", broken)
    async with browser(web, token=OPERATOR) as program:
        answer = await program.get("/api/v1/groups")

    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert answer.json()["id"] in caplog.text
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


async def test_an_unreachable_database_is_reported_without_its_address(
    web: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise StoreUnavailable("cannot reach postgresql://secret@db")

    monkeypatch.setattr(web.state.context.app.context.store, "open", gone)
    async with browser(web, token=OPERATOR) as program:
        health, alive = await program.get("/health"), await program.get("/health/live")

    assert (health.status_code, alive.status_code) == (503, 200)
    assert "secret" not in health.text


def test_mounted_under_a_prefix_every_address_stays_below_it(web: FastAPI) -> None:
    outer = TestClient(Starlette(routes=[Mount("/trax", web)]), follow_redirects=False)
    program = {"Authorization": f"Bearer {OPERATOR}"}

    sent_away = outer.get("/trax/executions?state=failed")
    form = outer.get("/trax/login")
    document = outer.get("/trax/api/v1/openapi.json", headers=program).json()
    listed = outer.get("/trax/api/v1/groups", headers=program)

    assert sent_away.headers["location"] == "/trax/login?next=%2Fexecutions%3Fstate%3Dfailed"
    assert not [
        address
        for address in re.findall(r'(?:href|src|action)="(/[^"]*)"', form.text)
        if "/trax/" not in address
    ]
    assert "Path=/trax" in sent_away.headers["set-cookie"]
    assert document["servers"] == [{"url": "/trax"}]
    assert listed.status_code == 200


@pytest.mark.parametrize(
    ("path", "onward"),
    [
        ("/executions?state=failed", "/executions?state=failed"),
        (None, "/"),
        ("https://evil.example", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\nb", "/"),
    ],
)
def test_a_login_redirects_only_within_the_dashboard(path: str | None, onward: str) -> None:
    assert safe_next(path) == onward


def test_access_can_be_configured_by_the_environment() -> None:
    found = Access.from_environment(
        {
            "TRAX_WEB_TOKENS": f"ci:operator:{OPERATOR}, grafana:viewer:{VIEWER}",
            "TRAX_WEB_USERS": f"olga:operator:{HASH}",
            "TRAX_WEB_SECRET": "a secret of many letters",
            "TRAX_WEB_TRUSTED_PROXIES": "10.0.0.7, 10.1.0.0/16",
            "TRAX_WEB_OPEN_HEALTH": "true",
        }
    )

    assert found.tokens == {"ci": Token(OPERATOR, Role.OPERATOR), "grafana": Token(VIEWER)}
    assert found.users["olga"].role is Role.OPERATOR
    assert (found.trusted_proxies, found.open_health) == (("10.0.0.7", "10.1.0.0/16"), True)
    assert not Access.from_environment({}).is_configured
    assert not Access.from_environment({}).open_health


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Token("short"), "16 characters"),
        (lambda: Token(OPERATOR, cast("Role", "admin")), "invalid dashboard role 'admin'"),
        (lambda: User("as it is typed"), "--hash-password"),
        (lambda: Access(secret="short"), "16 characters"),
        (lambda: Access.from_environment({"TRAX_WEB_TOKENS": "no-colon"}), "name:role:secret"),
        (lambda: Access.from_environment({"TRAX_WEB_OPEN_HEALTH": "maybe"}), "true or false (got 'maybe')"),
        (lambda: Access(trusted_proxies=["proxy.example"]), "10.0.0.0/8: 'proxy.example'"),
        (lambda: Access(insecure_local=True, trusted_proxies=["127.0.0.1"]), "remove insecure_local"),
        (lambda: User("scrypt.18.99.1." + "a" * 22 + "==." + "b" * 43 + "="), "--hash-password"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        wrong()


def test_secrets_do_not_stand_in_what_is_printed() -> None:
    assert OPERATOR not in repr(access())
    assert HASH not in repr(access())


def test_a_token_is_kept_as_its_hash_only() -> None:
    kept = Token(OPERATOR, Role.OPERATOR)

    assert kept == Token(hash_token(OPERATOR), Role.OPERATOR)
    assert OPERATOR not in kept.secret


async def test_a_token_works_until_its_last_day_has_ended_and_its_hash_never(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"ci:operator:{hash_token(OPERATOR)}:2027-03-01"
    web = create(app, access=Access.from_environment({"TRAX_WEB_TOKENS": variable}))
    statuses = dict[str, int]()
    for moment in ("2027-03-01T23:59:59+00:00", "2027-03-02T00:00:00+00:00"):
        monkeypatch.setattr(guard, "utc_now", partial(datetime.fromisoformat, moment))
        async with browser(web, token=OPERATOR) as program:
            statuses[moment] = (await program.get("/api/v1/groups")).status_code
    async with browser(web, token=hash_token(OPERATOR)) as thief:
        stolen = await thief.get("/api/v1/groups")

    assert list(statuses.values()) == [200, 401]
    assert stolen.status_code == 401


@pytest.mark.parametrize("day", ["soon", "2027-02-30", "9999-12-31", ""])
def test_a_last_day_that_does_not_exist_is_refused(day: str) -> None:
    with pytest.raises(DefinitionError, match="the last day of token 'ci' must be like"):
        Access.from_environment({"TRAX_WEB_TOKENS": f"ci:viewer:{hash_token(OPERATOR)}:{day}"})


def test_an_expiry_without_a_time_zone_is_refused() -> None:
    with pytest.raises(DefinitionError, match="needs a time zone"):
        Token(OPERATOR, Role.VIEWER, datetime.fromisoformat("2027-03-01"))
