"""Sessions are rows: they end on the server, are listed, and cost no write for each request."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.html_reader import Reader
from tests.support.web_app import HASH, NOON, OPERATOR, PASSWORD, access, browser, log_in, railway

from trax import Trax, acting
from trax.app import sessions as host_sessions
from trax.errors import DefinitionError, StoreUnavailable
from trax.records.audit import Actor, NewWebSession
from trax.store import web_sessions
from trax.testing import Harness
from trax.web import Access, Role, User, create
from trax.web.access import hash_password

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2
    from fastapi import FastAPI


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    async with Harness(railway(url), now=NOON) as opened:
        yield opened


@pytest.fixture
def web(h: Harness) -> FastAPI:
    return create(h.app, access=access())


async def is_in(client: httpx2.AsyncClient) -> bool:
    answer = await client.get("/api/v1/groups")
    assert answer.status_code in {200, 401}
    return answer.status_code == 200


def cookies_of(client: httpx2.AsyncClient) -> dict[str, str]:
    return dict(client.cookies)


async def test_a_session_is_written_down_with_where_it_began(web: FastAPI, h: Harness) -> None:
    async with browser(web, peer="192.0.2.7", headers={"User-Agent": "x" * 500}) as olga:
        await log_in(olga, "olga")
        (session,) = await h.app.sessions.list()
        secret = cookies_of(olga)["trax_session"]

    assert (session.user, session.role, session.means) == ("olga", "operator", "password")
    assert (session.address, session.user_agent) == ("192.0.2.7", "x" * 200)
    assert (session.created_at, (session.expires_at - NOON).total_seconds()) == (NOON, 2 * 3600)
    assert secret not in repr(session)


async def test_after_a_logout_the_cookie_is_invalid(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga:
        token = await log_in(olga, "olga")
        kept = cookies_of(olga)
        await olga.post("/logout", data={"csrf_token": token})
    async with browser(web, cookies=kept) as thief:
        is_still_in = await is_in(thief)

    assert not is_still_in
    assert await h.app.sessions.list() == []
    assert [(one.actor, one.action) for one in await h.app.audit.list()] == [
        ("olga", "sessions.end"),
        ("olga", "sessions.begin"),
    ]


async def test_a_session_ends_by_itself_though_it_is_used(
    web: FastAPI, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_sessions, "FRESH_SECONDS", 0.0)
    async with browser(web) as olga:
        await log_in(olga, "olga")
        before = list[bool]()
        for _ in range(11):
            await h.advance(hours=1)
            before.append(await is_in(olga))
        await h.advance(minutes=59)
        before.append(await is_in(olga))
        await h.advance(minutes=1)
        after = await is_in(olga)

    assert (all(before), after) == (True, False)


async def test_an_idle_session_ends_though_its_page_is_open(
    web: FastAPI, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_sessions, "FRESH_SECONDS", 0.0)
    async with browser(web) as used, browser(web) as left_open:
        await log_in(used, "olga")
        await log_in(left_open, "vera")
        live, found = {"X-Trax-Live": "1"}, list[tuple[bool, int, int]]()
        for _ in range(4):
            await h.advance(minutes=30)
            page = await left_open.get("/groups", headers=live)
            stream = await left_open.head("/api/v1/events")
            found.append((await is_in(used), page.status_code, stream.status_code))

    assert found == [(True, 200, 200)] * 3 + [(True, 303, 401)]
    assert [session.user for session in await h.app.sessions.list()] == ["olga"]


async def test_a_use_counts_though_the_page_has_just_renewed_itself(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga:
        await log_in(olga, "olga")
        await h.advance(minutes=90)
        h.app.sessions.cache.clear()
        await olga.get("/groups", headers={"X-Trax-Live": "1"})
        await olga.get("/groups")
        (session,) = await h.app.sessions.list()

    assert (session.expires_at - NOON) == timedelta(minutes=210)


async def test_without_an_idle_timeout_a_session_lasts_its_lifetime(h: Harness) -> None:
    web = create(h.app, access=access(session_idle_timeout=None))
    async with browser(web) as olga:
        await log_in(olga, "olga")
        (session,) = await h.app.sessions.list()

    assert (session.expires_at - NOON) == timedelta(hours=12)


def test_an_idle_timeout_shorter_than_uses_are_written_is_refused() -> None:
    with pytest.raises(DefinitionError, match="session_idle_timeout must be 5 min or more"):
        Access(session_idle_timeout=timedelta(minutes=1))


@pytest.mark.parametrize(
    "users",
    [
        {},
        {"olga": User(hash_password(PASSWORD, cost_log2=4), Role.OPERATOR)},
        {"olga": User(HASH, Role.VIEWER)},
    ],
    ids=["removed", "another hash", "another role"],
)
async def test_a_session_ends_when_its_user_is_configured_otherwise(
    web: FastAPI, h: Harness, users: dict[str, User]
) -> None:
    changed = create(h.app, access=access(users=users))
    async with browser(web) as olga:
        await log_in(olga, "olga")
        kept = cookies_of(olga)
    async with browser(changed, cookies=kept) as olga:
        is_still_in = await is_in(olga)

    assert not is_still_in
    assert await h.app.sessions.list() == []


async def test_a_forged_session_row_grants_no_access(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga:
        await log_in(olga, "olga")
        secret = cookies_of(olga)["trax_session"]
        stored = await h.app.sessions.find(secret)
    assert stored is not None
    forged = "f" * 43
    new = NewWebSession(
        key=host_sessions.digest(forged),
        user="olga",
        role="operator",
        means=stored.session.means,
        proof=stored.proof,
        address="",
        user_agent="",
    )
    store = await h.app.context.store.open()
    lifetime = stored.session.expires_at - NOON
    await store.call(web_sessions.insert_session, new, now=NOON, expires_at=NOON + lifetime)

    async with browser(web, cookies={"trax_session": forged}) as forger:
        assert not await is_in(forger)


@pytest.mark.parametrize("cookie", ["", "x", "a" * 43, "\u00e9" * 43], ids=["none", "short", "long", "odd"])
async def test_an_invented_cookie_grants_no_access(web: FastAPI, cookie: str) -> None:
    async with browser(web, headers={b"Cookie": f"trax_session={cookie}".encode("latin-1")}) as stranger:
        assert not await is_in(stranger)


async def test_logging_in_again_ends_the_session_before(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga:
        await log_in(olga, "olga")
        first = cookies_of(olga)
        await log_in(olga, "olga")
    async with browser(web, cookies=first) as before:
        is_still_in = await is_in(before)

    assert not is_still_in
    assert len(await h.app.sessions.list()) == 1


async def test_signing_out_everywhere_ends_all_sessions_of_one_user_only(web: FastAPI) -> None:
    async with browser(web) as one, browser(web) as other, browser(web) as vera:
        await log_in(one, "olga")
        token = await log_in(other, "olga")
        await log_in(vera, "vera")
        await other.post("/logout", data={"csrf_token": token, "where": "everywhere"})
        found = [await is_in(client) for client in (one, other, vera)]

    assert found == [False, False, True]


async def test_a_viewer_signs_out_everywhere_and_sees_only_their_own(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga, browser(web) as one, browser(web) as other:
        await log_in(olga, "olga")
        await log_in(one, "vera")
        token = await log_in(other, "vera")
        seen = (await one.get("/api/v1/sessions")).json()["items"]
        prying = (await one.get("/api/v1/sessions?user=olga")).json()["items"]
        refused = await one.delete(f"/api/v1/sessions/{seen[0]['id']}", headers={"X-CSRF-Token": token})
        left = await other.post("/logout", data={"csrf_token": token, "where": "everywhere"})

    assert ([each["user"] for each in seen], prying) == (["vera", "vera"], [])
    assert (refused.status_code, left.status_code) == (403, 303)
    assert [session.user for session in await h.app.sessions.list()] == ["olga"]


async def test_an_operators_program_lists_and_ends_sessions(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga, browser(web) as vera, browser(web, token=OPERATOR) as program:
        await log_in(olga, "olga")
        await log_in(vera, "vera")
        listed = (await program.get("/api/v1/sessions?limit=1")).json()
        rest = (await program.get(f"/api/v1/sessions?limit=5&before={listed['next']}")).json()["items"]
        ended = await program.delete(f"/api/v1/sessions/{listed['items'][0]['id']}")
        again = await program.delete(f"/api/v1/sessions/{listed['items'][0]['id']}")
        found = [await is_in(client) for client in (olga, vera)]
        neither = await program.post("/api/v1/sessions/end", json={})
        all_of_olga = await program.post("/api/v1/sessions/end", json={"user": "olga"})

    assert ([one["user"] for one in listed["items"]], [one["user"] for one in rest]) == (["vera"], ["olga"])
    assert set(rest[0]) == {
        "id", "user", "role", "means", "address", "user_agent", "created_at", "last_seen_at", "expires_at"
    }  # fmt: skip
    assert (ended.json(), again.status_code) == ({"ids": [listed["items"][0]["id"]]}, 404)
    assert found == [True, False]
    assert (neither.status_code, all_of_olga.json()) == (422, {"ids": [rest[0]["id"]]})
    assert [
        (one.actor, one.action)
        for one in await h.app.audit.list(noun="session")
        if one.action != "sessions.begin"
    ] == [
        ("deploy", "sessions.end_all"),
        ("deploy", "sessions.end"),
        ("deploy", "sessions.end"),
    ]


async def test_an_operator_ends_sessions_on_their_page(web: FastAPI, h: Harness) -> None:
    async with browser(web) as client, browser(web) as vera, browser(web) as also_vera:
        await log_in(client, "olga")
        await log_in(vera, "vera")
        await log_in(also_vera, "vera")
        olga = Reader(client)
        page = await olga.open("/sessions")
        (newest, *_) = await h.app.sessions.list()
        after_one = await olga.send(page, "End", id=str(newest.id))
        of_vera = await olga.open("/sessions", user="vera")
        question = await olga.send(of_vera, "End all of vera")
        after_all = await olga.send(question, "Yes")
        found = [await is_in(each) for each in (client, vera, also_vera)]

    assert "this browser" in page.text
    assert "/sessions" in (await _links(web, client_cookies=cookies_of(client)))
    assert "Ended: 1 session" in after_one.text
    assert "Ended: 1 session" in after_all.text
    assert found == [True, False, False]


async def _links(web: FastAPI, client_cookies: dict[str, str]) -> list[str]:
    async with browser(web, cookies=client_cookies) as client:
        return (await Reader(client).open("/")).links


async def test_ending_in_python_is_immediate_in_the_same_process(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga:
        await log_in(olga, "olga")
        was_in = await is_in(olga)
        with acting(Actor("ada")):
            ended = await h.app.sessions.end_all()

        assert (was_in, len(ended), await is_in(olga)) == (True, 1, False)


async def test_another_process_notices_within_seconds(
    url: str, web: FastAPI, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory there is no other process; a second app on the same file or server stands for one."""
    if url == "memory://":
        other = h.app
    else:
        other = Trax(url)
        other.context.store.clock = lambda: h.now
    now = [0.0]
    monkeypatch.setattr(h.app.sessions.cache, "clock", lambda: now[0])
    async with browser(web) as olga:
        await log_in(olga, "olga")
        assert await is_in(olga)
        (session,) = await other.sessions.list()
        await other.sessions.end([session.id])
        now[0] += host_sessions.FRESH_SECONDS

        assert not await is_in(olga)
    if other is not h.app:
        other.close()


async def test_a_session_that_is_read_while_it_ends_is_not_remembered(
    web: FastAPI, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browser(web) as olga:
        await log_in(olga, "olga")
        (session,) = await h.app.sessions.list()
        h.app.sessions.cache.clear()
        store = await h.app.context.store.open()
        ask = store.ask

        async def ask_and_end(*given: Any, **more: Any) -> Any:
            found = await ask(*given, **more)
            monkeypatch.setattr(store, "ask", ask)
            await h.app.sessions.end([session.id])
            return found

        monkeypatch.setattr(store, "ask", ask_and_end)
        await olga.get("/api/v1/openapi.json")

        assert not await is_in(olga)


async def test_visiting_writes_at_most_once_a_minute_and_reads_seldom(
    web: FastAPI, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[str]()
    load, mark = web_sessions.load, web_sessions.mark_seen

    def note_read(*given: Any, **more: Any) -> Any:
        seen.append("read")
        return load(*given, **more)

    def note_write(*given: Any, **more: Any) -> None:
        seen.append("write")
        mark(*given, **more)

    monkeypatch.setattr(web_sessions, "load", note_read)
    monkeypatch.setattr(web_sessions, "mark_seen", note_write)
    now = [0.0]
    monkeypatch.setattr(h.app.sessions.cache, "clock", lambda: now[0])
    async with browser(web) as olga:
        await log_in(olga, "olga")
        seen.clear()
        for _ in range(20):
            await is_in(olga)
        at_once = list(seen)
        await h.advance(minutes=2)
        for _ in range(3):
            now[0] += host_sessions.FRESH_SECONDS
            await is_in(olga)
        (session,) = await h.app.sessions.list()

    assert at_once == []
    assert seen == ["read", "write", "read", "read"]
    assert session.last_seen_at == h.now


async def test_a_database_that_is_away_is_no_logout(
    web: FastAPI, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browser(web) as olga:
        await log_in(olga, "olga")
        h.app.sessions.cache.clear()

        def is_away() -> None:
            raise StoreUnavailable("cannot reach it")

        with monkeypatch.context() as patch:
            patch.setattr(h.app.context.store, "open", is_away)
            page, api, live = [await olga.get(path) for path in ("/", "/api/v1/groups", "/health/live")]
            style = await olga.get("/static/trax.css")
        after = await is_in(olga)

    assert (page.status_code, api.status_code, api.json()["code"]) == (503, 503, "unavailable")
    assert (live.status_code, style.status_code) == (200, 200)
    assert "set-cookie" not in page.headers
    assert after


async def test_expired_sessions_are_deleted_by_the_cleanup(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga:
        await log_in(olga, "olga")
    token = await h.app.sessions.create_link()
    await h.advance(hours=13)
    store = await h.app.context.store.open()

    await h.cycle("dead_letter_cleanup")

    def stored(connection: Any) -> tuple[int, bool]:
        is_good = web_sessions.redeem_link(connection, host_sessions.digest(token), now=NOON)
        return len(web_sessions.delete_all(connection, user=None)), is_good

    assert await store.call(stored) == (0, False)


async def test_parallel_requests_with_one_session_all_get_in(web: FastAPI, h: Harness) -> None:
    async with browser(web) as olga:
        await log_in(olga, "olga")
        h.app.sessions.cache.clear()
        answers = await asyncio.gather(*(is_in(olga) for _ in range(10)))

    assert answers == [True] * 10


async def test_where_anybody_may_enter_there_are_no_sessions_to_show(h: Harness) -> None:
    async with browser(create(h.app, access=Access(allow_anonymous=Role.VIEWER))) as client:
        page = await Reader(client).open("/sessions")

    assert (page.status, "No sessions" in page.text) == (200, True)
