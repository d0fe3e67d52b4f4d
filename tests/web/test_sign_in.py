"""Getting in where no access is configured, from this machine, and through proxies."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.support.web_app import NOON, OPERATOR, PASSWORD, browser, csrf_token_on, log_in, railway
from tests.support.web_app import access as with_users

from trax.errors import DefinitionError
from trax.testing import Harness
from trax.web import Access, create
from trax.web.peer import TrustedProxies, networks_of
from trax.web.serve import ListenAddress, WebListener

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SESSION = "trax_session"
PROXY = "10.0.0.7"


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    async with Harness(railway(url), now=NOON) as opened:
        yield opened


@pytest.fixture
def web(h: Harness) -> FastAPI:
    """Nobody has said who may enter."""
    return create(h.app, access=Access())


async def open_link(client: httpx2.AsyncClient, h: Harness, **more: str) -> httpx2.Response:
    token = await h.app.sessions.create_link()
    return await client.get("/login", params={"token": token, **more})


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "192.0.2.7", "testclient"])
async def test_without_configuration_no_address_grants_access(web: FastAPI, peer: str) -> None:
    async with browser(web, peer=peer) as client:
        api = await client.get("/api/v1/settings")
        change = await client.post("/api/v1/settings/reset", json={})
        page = await client.get("/executions?state=failed")
        explained = await client.get(page.headers["location"])

    assert (api.status_code, change.status_code, page.status_code) == (401, 401, 303)
    assert "trax sessions link" in api.json()["hint"]
    assert "TRAX_WEB_TOKENS" in api.json()["hint"]
    assert page.headers["location"] == "/login?next=%2Fexecutions%3Fstate%3Dfailed"
    assert "trax sessions link" in explained.text


def test_an_application_mounted_without_access_refuses_every_request(h: Harness) -> None:
    answer = TestClient(h.app.web()).get("/api/v1/groups")

    assert answer.status_code == 401


async def test_a_link_signs_one_browser_in_as_local_operator(web: FastAPI, h: Harness) -> None:
    async with browser(web) as client:
        opened = await open_link(client, h, next="/groups")
        token = await csrf_token_on(client, "/groups")
        changed = await client.patch(
            "/api/v1/settings", json={"max_active_jobs": 3}, headers={"X-CSRF-Token": token}
        )
        audit = (await client.get("/api/v1/audit")).json()["items"]

    assert (opened.status_code, opened.headers["location"]) == (303, "/groups")
    assert changed.status_code == 200
    assert [(one["actor"], one["action"]) for one in audit] == [
        ("local", "settings.update"),
        ("local", "sessions.begin"),
    ]


async def test_a_link_works_once(web: FastAPI, h: Harness) -> None:
    link = {"token": await h.app.sessions.create_link()}
    async with browser(web) as first, browser(web) as second:
        entered = await first.get("/login", params=link)
        late = await second.get("/login", params=link)
        outside = await second.get("/api/v1/groups")
        again = await first.get("/login", params=link)

    assert (entered.status_code, late.status_code, outside.status_code) == (303, 403, 401)
    assert "has already been used" in late.text
    assert "trax sessions link" in late.text
    assert SESSION not in late.headers.get("set-cookie", "")
    assert (again.status_code, again.headers["location"]) == (303, "/")  # their own link once more


async def test_concurrent_uses_of_a_link_sign_one_browser_in(web: FastAPI, h: Harness) -> None:
    token = await h.app.sessions.create_link()
    async with browser(web) as client:
        answers = await asyncio.gather(*(client.get("/login", params={"token": token}) for _ in range(8)))

    assert sorted(answer.status_code for answer in answers) == [303] + [403] * 7
    assert len(await h.app.sessions.list()) == 1


async def test_a_link_is_good_for_an_hour(web: FastAPI, h: Harness) -> None:
    token = await h.app.sessions.create_link()
    await h.advance(minutes=61)
    async with browser(web) as client:
        late = await client.get("/login", params={"token": token})

    assert late.status_code == 403


async def test_a_link_is_no_token_for_programs(web: FastAPI, h: Harness) -> None:
    token = await h.app.sessions.create_link()
    async with browser(web, token=token) as program:
        refused = await program.get("/api/v1/groups")
    async with browser(web) as person:
        still_good = await person.get("/login", params={"token": token})

    assert (refused.status_code, still_good.status_code) == (401, 303)


async def test_once_access_is_configured_links_and_their_sessions_are_invalid(
    web: FastAPI, h: Harness
) -> None:
    configured = create(h.app, access=with_users())
    async with browser(web) as client:
        await open_link(client, h)
        cookies = dict(client.cookies)
    async with browser(configured, cookies=cookies) as client:
        with_session = await client.get("/api/v1/groups")
        with_link = await open_link(client, h)

    assert (with_session.status_code, with_link.status_code) == (401, 403)
    assert await h.app.sessions.list() == []


async def test_wrong_links_are_throttled(web: FastAPI) -> None:
    web.state.context.throttle.clock = lambda: 0.0
    async with browser(web) as client:
        answers = [await client.get("/login", params={"token": f"guess {number}"}) for number in range(21)]

    assert [answer.status_code for answer in answers] == [403] * 20 + [429]


@pytest.mark.parametrize(
    ("peer", "host", "headers", "may_enter"),
    [
        ("127.0.0.1", "127.0.0.1:8080", {}, True),
        ("127.0.0.1", "localhost", {}, True),
        ("::1", "[::1]:8080", {}, True),
        ("127.0.0.1", "rebound.example", {}, False),
        ("127.0.0.1", "localhost", {"X-Forwarded-For": "127.0.0.1"}, False),
        ("127.0.0.1", "localhost", {"X-Forwarded-Proto": "http"}, False),
        ("127.0.0.1", "localhost", {"Forwarded": "for=127.0.0.1"}, False),
        ("192.0.2.7", "localhost", {}, False),
        ("testclient", "testserver", {}, False),
    ],
)
async def test_insecure_local_grants_access_to_this_machine_only(
    h: Harness, peer: str, host: str, headers: dict[str, str], may_enter: bool
) -> None:
    web = create(h.app, access=Access(insecure_local=True))
    async with browser(web, base=f"http://{host}", peer=peer) as asking:
        answer = await asking.get("/api/v1/settings", headers=headers)

    assert answer.status_code == (200 if may_enter else 403)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104
def test_insecure_local_is_refused_where_others_can_reach_it(host: str) -> None:
    for access in (Access(insecure_local=True), with_users(insecure_local=True)):
        with pytest.raises(DefinitionError, match="every process of this machine an operator"):
            WebListener(ListenAddress(0, host), access)


@pytest.mark.parametrize(
    ("peer", "headers", "outside"),
    [
        (PROXY, {"X-Forwarded-For": "192.0.2.7"}, "192.0.2.7"),
        (PROXY, {"X-Forwarded-For": "6.6.6.6, 192.0.2.7"}, "192.0.2.7"),
        (PROXY, {"X-Forwarded-For": "6.6.6.6, 192.0.2.7, 10.1.2.3"}, "192.0.2.7"),
        (PROXY, {"X-Forwarded-For": "192.0.2.7:4711"}, "192.0.2.7"),
        (PROXY, {"X-Forwarded-For": "[2001:db8::1]:4711"}, "2001:db8::1"),
        (PROXY, {"X-Forwarded-For": "192.0.2.7", "Forwarded": "for=6.6.6.6"}, "192.0.2.7"),
        (PROXY, {"X-Forwarded-For": "192.0.2.7", "Forwarded": "for=127.0.0.1"}, "192.0.2.7"),
        (PROXY, {"Forwarded": "for=127.0.0.1"}, PROXY),
        (PROXY, {"X-Forwarded-For": "unknown"}, PROXY),
        (PROXY, {}, PROXY),
        ("::ffff:10.0.0.7", {"X-Forwarded-For": "192.0.2.7"}, "192.0.2.7"),
        ("10.0.0.8", {"X-Forwarded-For": "192.0.2.7"}, "10.0.0.8"),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}, "127.0.0.1"),
    ],
)
def test_only_declared_proxies_may_forward_a_client_address(
    peer: str, headers: dict[str, str], outside: str
) -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "client": (peer, 1),
        "scheme": "http",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }

    TrustedProxies([PROXY, "10.1.0.0/16"]).apply_to(scope)

    assert scope["client"][0] == outside


@pytest.mark.parametrize(
    ("headers", "outside", "scheme"),
    [
        ({"Forwarded": 'for=6.6.6.6, for="[2001:db8::1]:4711";proto=https'}, "2001:db8::1", "https"),
        ({"Forwarded": "for=192.0.2.7", "X-Forwarded-For": "127.0.0.1"}, "192.0.2.7", "http"),
        ({"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}, PROXY, "http"),
    ],
)
def test_a_proxy_that_writes_the_other_header_is_read_in_that_one(
    headers: dict[str, str], outside: str, scheme: str
) -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "client": (PROXY, 1),
        "scheme": "http",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }

    TrustedProxies([PROXY], "forwarded").apply_to(scope)

    assert (scope["client"][0], scope["scheme"]) == (outside, scheme)


def test_a_forwarding_header_that_no_proxy_writes_is_refused() -> None:
    with pytest.raises(DefinitionError, match="forwarding_header must be x-forwarded-for or forwarded"):
        Access(forwarding_header="x-real-ip")


async def test_behind_the_documented_proxy_a_client_cannot_hide_with_another_header(h: Harness) -> None:
    web = create(h.app, access=with_users(trusted_proxies=["127.0.0.1"]))
    web.state.context.throttle.clock = lambda: 0.0
    statuses = list[int]()
    for number in range(8):
        headers = {"X-Forwarded-For": "192.0.2.7", "Forwarded": f"for=198.51.100.{number}"}
        async with browser(web, headers=headers) as client:
            token = await csrf_token_on(client, "/login")
            form = {"name": "olga", "password": "a guess", "csrf_token": token}
            statuses.append((await client.post("/login", data=form)).status_code)
    async with browser(web, headers={"X-Forwarded-For": "192.0.2.8"}) as olga:
        await log_in(olga, "olga")
        (session,) = await h.app.sessions.list()

    assert statuses == [401] * 5 + [429] * 3
    assert session.address == "192.0.2.8"


def test_a_proxy_that_was_not_declared_is_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    proxies = TrustedProxies(())
    headers = [(b"x-forwarded-for", b"192.0.2.7")]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            proxies.apply_to({"type": "http", "client": (PROXY, 1), "headers": headers})

    (line,) = caplog.messages
    assert PROXY in line
    assert "TRAX_WEB_TRUSTED_PROXIES" in line


@pytest.mark.parametrize(
    ("peer", "base", "headers", "is_secure"),
    [
        (PROXY, "http://trax.example", {"X-Forwarded-Proto": "https"}, True),
        (PROXY, "http://trax.example", {"Forwarded": "for=192.0.2.7;proto=https"}, False),
        (PROXY, "http://trax.example", {}, False),
        ("10.0.0.8", "http://trax.example", {"X-Forwarded-Proto": "https"}, False),
        ("10.0.0.8", "https://trax.example", {}, True),
        (PROXY, "https://trax.example", {"X-Forwarded-Proto": "gopher"}, True),
    ],
)
async def test_cookies_are_secure_where_the_outside_is_tls(
    h: Harness, peer: str, base: str, headers: dict[str, str], is_secure: bool
) -> None:
    web = create(h.app, access=with_users(trusted_proxies=[PROXY]))
    async with browser(web, base=base, peer=peer) as client:
        shown = await client.get("/login", headers=headers)

    cookie = shown.headers["set-cookie"]
    assert ("Secure" in cookie.split("; ")) is is_secure
    assert cookie.startswith("__Host-trax_browser=") is is_secure
    assert ("strict-transport-security" in shown.headers) is is_secure


async def test_below_a_path_of_another_application_its_host_keeps_its_own_rules(h: Harness) -> None:
    host = FastAPI()
    host.mount("/trax", create(h.app, access=with_users()))
    async with browser(host, base="https://example.com") as client:
        shown = await client.get("/trax/login")
        form = {
            "name": "olga",
            "password": PASSWORD,
            "csrf_token": await csrf_token_on(client, "/trax/login"),
        }
        entered = await client.post("/trax/login", data=form)
        inside = await client.get("/trax/api/v1/groups")

    assert shown.headers["set-cookie"].startswith("__Secure-trax_browser=")
    assert entered.headers["set-cookie"].startswith("__Secure-trax_session=")
    assert "strict-transport-security" not in shown.headers
    assert inside.status_code == 200


async def test_a_cookie_set_without_tls_is_refused_with_tls(h: Harness) -> None:
    web = create(h.app, access=with_users())
    async with browser(web, base="http://example.com") as olga:
        await log_in(olga, "olga")
        planted = {"Cookie": f"trax_session={olga.cookies['trax_session']}"}
    async with browser(web, base="https://example.com", headers=planted) as victim:
        answer = await victim.get("/api/v1/groups")

    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ((), "127.0.0.1:8080", 200),
        ((), "[::1]:8080", 200),
        ((), "localhost:8080", 200),
        ((), "192.0.2.7", 200),
        ((), "rebound.example", 403),
        ((), "127.0.0.1.rebound.example", 403),
        ((), "localhost.rebound.example", 403),
        (["trax.example"], "trax.example", 200),
        (["trax.example"], "TRAX.example.:443", 200),
        (["trax.example"], "rebound.example", 421),
        (["trax.example"], "a.trax.example", 421),
        (["trax.example"], "127.0.0.1", 421),
        ([".trax.example"], "a.trax.example", 200),
        ([".trax.example"], "nottrax.example", 421),
        (["[::1]", "127.0.0.1"], "[::1]:8080", 200),
    ],
)
async def test_a_page_of_another_site_is_no_anonymous_client(
    h: Harness, allowed: list[str], host: str, status: int
) -> None:
    web = create(h.app, access=Access(allow_anonymous=True, allowed_hosts=allowed))
    async with browser(web, base=f"http://{host}") as client:
        read = await client.get("/api/v1/groups")
        change = await client.patch("/api/v1/settings", json={"max_active_jobs": 7})
        live = await client.get("/health/live")

    assert (read.status_code, change.status_code, live.status_code) == (status, status, 200)


async def test_where_hosts_are_named_no_other_one_is_answered_with_an_account_either(h: Harness) -> None:
    web = create(h.app, access=with_users(allowed_hosts=["trax.example"]))
    async with (
        browser(web, base="http://other.example", token=OPERATOR) as other,
        browser(web, base="http://trax.example", token=OPERATOR) as known,
    ):
        refused, login = await other.get("/api/v1/groups"), await other.get("/login")
        answer = await known.get("/api/v1/groups")

    assert (refused.status_code, login.status_code, answer.status_code) == (421, 421, 200)
    assert "TRAX_WEB_ALLOWED_HOSTS" in refused.json()["hint"]


@pytest.mark.parametrize("host", ["", "http://trax.example", "trax.example:8080", "trax.example/", "a b"])
def test_a_host_that_no_request_can_name_is_refused(host: str) -> None:
    with pytest.raises(DefinitionError, match="allowed_hosts must be names"):
        Access(allowed_hosts=[host])


def test_hosts_and_the_header_of_proxies_come_from_the_environment() -> None:
    found = Access.from_environment(
        {"TRAX_WEB_ALLOWED_HOSTS": "Trax.example, 10.0.0.7", "TRAX_WEB_FORWARDING_HEADER": "Forwarded"}
    )

    assert (found.allowed_hosts, found.forwarding_header) == (("trax.example", "10.0.0.7"), "forwarded")


async def test_a_head_request_does_not_use_up_a_link(web: FastAPI, h: Harness) -> None:
    link = {"token": await h.app.sessions.create_link()}
    async with browser(web) as checker, browser(web) as person:
        head = await checker.head("/login", params=link)
        entered = await person.get("/login", params=link)

    assert (head.status_code, entered.status_code) == (200, 303)
    assert SESSION not in head.headers.get("set-cookie", "")


async def test_our_own_server_believes_no_proxy_that_was_not_declared(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    access = with_users()
    forwarded = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
    async with (
        WebListener(ListenAddress(port=0), access).serve(h.app) as address,
        httpx2.AsyncClient(base_url=address, headers=forwarded, timeout=60) as client,
    ):
        cookie = (await client.get("/login")).headers["set-cookie"]
        await log_in(client, "olga")
        (session,) = await h.app.sessions.list()

    assert "Secure" not in cookie.split("; ")
    assert session.address == "127.0.0.1"


async def test_two_dashboards_on_one_machine_do_not_share_a_session(web: FastAPI, h: Harness) -> None:
    async with browser(web, base="http://127.0.0.1:8080") as client:
        opened = await open_link(client, h)

    assert opened.headers["set-cookie"].startswith(f"{SESSION}_8080=")


def test_one_customer_has_a_whole_network_of_ipv6() -> None:
    one, same = networks_of("2001:db8:0:1::1"), networks_of("2001:db8:0:1:ffff::9")

    assert one == same == ("2001:db8:0:1::/64", "2001:db8::/56", "2001:db8::/48")
    assert networks_of("2001:db8:0:2::1")[1:] == one[1:]
    assert networks_of("2001:db8:0:2::1")[0] != one[0]
    assert (networks_of("192.0.2.7"), networks_of("::ffff:192.0.2.7")) == (("192.0.2.7",), ("192.0.2.7",))
    assert networks_of("testclient") == ("testclient",)


async def test_health_needs_access_unless_it_is_opened(h: Harness) -> None:
    closed = create(h.app, access=with_users())
    opened = create(h.app, access=with_users(open_health=True))
    async with browser(closed) as outside, browser(opened) as let_in:
        refused = [(await outside.get(path)).status_code for path in ("/health", "/metrics")]
        health, metrics = await let_in.get("/health"), await let_in.get("/metrics")
        live = [(await client.get("/health/live")).status_code for client in (outside, let_in)]

    assert refused == [401, 401]
    assert (health.status_code, metrics.status_code, live) == (200, 401, [200, 200])
    assert health.json()["status"] == "Healthy"


async def test_a_token_may_always_ask_for_health(h: Harness) -> None:
    async with browser(create(h.app, access=with_users()), token=OPERATOR) as monitor:
        assert (await monitor.get("/health")).status_code == 200
