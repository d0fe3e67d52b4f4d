"""Sign-ins and failed sign-ins are in the audit log, which they cannot fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.web_app import NOON, PASSWORD, access, browser, csrf_token_on, log_in, railway

from trax.app import sessions as host_sessions
from trax.app.sessions import FailureBudget
from trax.errors import StoreUnavailable
from trax.testing import Harness
from trax.web import Access, create

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

WRONG = "hunter2, a guess"


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    async with Harness(railway(url), now=NOON) as opened:
        yield opened


async def guess(client: httpx2.AsyncClient, name: str) -> int:
    token = await csrf_token_on(client, "/login")
    form = {"name": name, "password": WRONG, "csrf_token": token}
    return (await client.post("/login", data=form)).status_code


async def test_a_sign_in_and_its_end_are_recorded(h: Harness) -> None:
    web = create(h.app, access=access())
    async with browser(web, peer="192.0.2.7") as olga:
        token = await log_in(olga, "olga")
        await olga.post("/logout", data={"csrf_token": token})

    end, begin = await h.app.audit.list()
    assert (begin.actor, begin.via, begin.action, begin.noun) == (
        "olga",
        "dashboard",
        "sessions.begin",
        "session",
    )
    assert begin.after == {"user": "olga", "means": "password", "address": "192.0.2.7"}
    assert (end.action, end.ids) == ("sessions.end", begin.ids)


async def test_a_sign_in_with_a_link_is_recorded_and_a_wrong_link_too(h: Harness) -> None:
    web, link = create(h.app, access=Access()), await h.app.sessions.create_link()
    async with browser(web) as client:
        for token in ("a guess", "a guess", link):
            await client.get("/login", params={"token": token})

    begin, refused = await h.app.audit.list()
    assert (begin.actor, begin.action, begin.after["means"]) == ("local", "sessions.begin", "link")
    assert (refused.actor, refused.action) == ("unauthenticated", "sessions.refuse")
    assert refused.after == {"why": "invalid link", "address": "127.0.0.1"}


async def test_failed_sign_ins_are_recorded_without_what_was_typed(h: Harness) -> None:
    web = create(h.app, access=access())
    async with browser(web, peer="192.0.2.7") as attacker:
        assert await guess(attacker, "olga") == 401
        assert await guess(attacker, PASSWORD) == 401  # a password in the field of the name
        for token in ("an old token of ours", "an old token of ours", "another token"):
            await attacker.get("/api/v1/groups", headers={"Authorization": f"Bearer {token}"})

    entries = [*reversed(await h.app.audit.list())]
    assert [(entry.ids, entry.after["why"]) for entry in entries] == [
        (("olga",), "wrong password"),
        ((), "unknown name"),
        ((), "wrong token"),
        ((), "wrong token"),
    ]
    assert {(entry.actor, entry.action, entry.after["address"]) for entry in entries} == {
        ("unauthenticated", "sessions.refuse", "192.0.2.7")
    }
    for typed in (WRONG, PASSWORD, "an old token of ours"):
        assert typed not in repr(entries)


async def test_failed_sign_ins_cannot_fill_the_audit(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    web, now = create(h.app, access=access()), [0.0]
    monkeypatch.setattr(h.app.sessions, "_failures", FailureBudget(clock=lambda: now[0]))
    for number in range(250):
        headers = {"Authorization": f"Bearer guess {number}"}
        async with browser(web, peer=f"192.0.2.{number}", headers=headers) as attacker:
            await attacker.get("/api/v1/groups")
    written = await h.app.audit.count()
    now[0] += host_sessions.SECONDS_PER_FAILURE
    async with browser(web, headers={"Authorization": "Bearer the last guess"}) as attacker:
        await attacker.get("/api/v1/groups")

    (last, before) = await h.app.audit.list(limit=2)
    assert written.number == host_sessions.MOST_FAILURES
    assert (last.count, before.count) == (51, 1)


async def test_a_failure_that_cannot_be_recorded_is_still_answered(
    h: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(host_sessions, "record_audit", fail)
    async with browser(create(h.app, access=access())) as client:
        status = await guess(client, "olga")

    assert status == 401
    assert "a failed sign-in is not in the audit" in caplog.text
