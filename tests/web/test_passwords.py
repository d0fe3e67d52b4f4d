"""A hash of a lower cost is replaced at login, by a row that is worth nothing without the configuration."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.support.web_app import NOON, PASSWORD, access, browser, csrf_token_on, log_in, railway

from trax import Trax
from trax.errors import DefinitionError
from trax.store import web_sessions as rows
from trax.store.schema import tables
from trax.store.web_sessions import StoredPassword
from trax.testing import Harness
from trax.web import Role, User, create
from trax.web import access as access_web
from trax.web import passwords as passwords_web
from trax.web.access import CHECKS, TooManyChecks, hash_password, is_outdated, matches

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from fastapi import FastAPI
    from sqlalchemy import Connection

TODAY = 5
"""The current cost in these tests; the real one takes most of a second for each password."""
OLD = hash_password(PASSWORD, cost_log2=TODAY - 1)
WRONG = "a guess"


@pytest.fixture(autouse=True)
def cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords_web, "COST_LOG2", TODAY)


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    async with Harness(railway(url), now=NOON) as opened:
        yield opened


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that passwords were verified against."""
    noted = list[str]()

    def note(password: str, text: str) -> bool:
        noted.append(text)
        return matches(password, text)

    monkeypatch.setattr(access_web, "matches", note)
    return noted


def dashboard(app: Trax, **hashes: str) -> FastAPI:
    users = {name: User(text, Role.OPERATOR) for name, text in hashes.items()}
    return create(app, access=access(users=users))


async def enter(web: FastAPI, name: str = "olga", password: str = PASSWORD) -> int:
    async with browser(web) as client:
        token = await csrf_token_on(client, "/login")
        form = {"name": name, "password": password, "csrf_token": token}
        return (await client.post("/login", data=form)).status_code


async def stored(app: Trax) -> dict[str, StoredPassword]:
    store = await app.context.store.open()
    return {row.user: row for row in await store.ask(rows.load_passwords, app=app.context.name)}


async def execute(app: Trax, statement: str) -> None:
    def run(connection: Connection) -> None:
        connection.execute(text(statement.format(table=tables(connection).web_password.fullname)))

    store = await app.context.store.open()
    await store.call(run)


async def test_after_a_login_the_password_is_verified_at_the_cost_of_today(
    h: Harness, checked: list[str]
) -> None:
    web = dashboard(h.app, olga=OLD)

    first, row = await enter(web), (await stored(h.app))["olga"]
    second, wrong = await enter(web), await enter(web, password=WRONG)

    assert (first, second, wrong) == (303, 303, 401)
    assert checked == [OLD, row.hash, row.hash]
    assert row.hash.startswith(f"scrypt.{TODAY}.8.1.")
    assert await stored(h.app) == {"olga": row}


async def test_another_server_uses_the_row_as_well(h: Harness, checked: list[str]) -> None:
    await enter(dashboard(h.app, olga=OLD))

    entered = await enter(dashboard(h.app, olga=OLD))

    assert entered == 303
    assert checked == [OLD, (await stored(h.app))["olga"].hash]


async def test_the_cost_of_today_is_the_one_of_new_hashes(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords_web, "COST_LOG2", access_web.COST_LOG2)

    await enter(dashboard(h.app, olga=OLD))

    (row,) = (await stored(h.app)).values()
    assert row.hash.startswith("scrypt.17.8.1.")


@pytest.mark.parametrize(
    ("name", "password"), [("olga", WRONG), ("nobody", PASSWORD)], ids=["wrong password", "unknown name"]
)
async def test_a_failed_login_writes_nothing(h: Harness, name: str, password: str) -> None:
    assert await enter(dashboard(h.app, olga=OLD), name, password) == 401
    assert await stored(h.app) == {}


async def test_a_hash_of_the_cost_of_today_needs_no_row(h: Harness) -> None:
    assert await enter(dashboard(h.app, olga=hash_password(PASSWORD, cost_log2=TODAY))) == 303
    assert await stored(h.app) == {}


async def test_an_unknown_name_is_verified_against_the_row_of_another_user(
    h: Harness, checked: list[str]
) -> None:
    web = dashboard(h.app, olga=OLD)
    await enter(web)
    row = (await stored(h.app))["olga"]
    checked.clear()

    known, unknown = await enter(web, password=WRONG), await enter(web, "nobody", PASSWORD)

    assert (known, unknown) == (401, 401)
    assert checked == [row.hash, row.hash]


@pytest.mark.parametrize("new_cost", [TODAY - 1, TODAY], ids=["weak again", "of today"])
async def test_a_changed_password_applies_at_once_and_the_old_row_is_deleted(
    h: Harness, new_cost: int
) -> None:
    await enter(dashboard(h.app, olga=OLD))
    before = await stored(h.app)
    changed = dashboard(h.app, olga=hash_password("another", cost_log2=new_cost))

    old_password, new_password = await enter(changed), await enter(changed, password="another")

    assert (old_password, new_password) == (401, 303)
    after = await stored(h.app)
    assert after.keys() == ({"olga"} if new_cost < TODAY else set())
    assert after.get("olga") != before["olga"]


async def test_the_row_of_a_user_who_was_removed_goes_at_the_next_login(h: Harness) -> None:
    await enter(dashboard(h.app, olga=OLD))
    without = dashboard(h.app, vera=OLD)

    assert await enter(without) == 401
    assert (await stored(h.app)).keys() == {"olga"}  # nobody writes who is not logged in
    assert await enter(without, "vera") == 303
    assert (await stored(h.app)).keys() == {"vera"}


async def test_the_users_of_another_app_on_the_database_are_left_alone(url: str) -> None:
    bar, kitchen = Trax(url, name="bar"), Trax(url, name="kitchen")

    await enter(dashboard(bar, olga=OLD))
    await enter(dashboard(kitchen, vera=OLD), "vera")

    assert ((await stored(bar)).keys(), (await stored(kitchen)).keys()) == ({"olga"}, {"vera"})
    bar.close()
    kitchen.close()


async def test_a_forged_row_signs_no_user_in(h: Harness, checked: list[str]) -> None:
    web = dashboard(h.app, olga=OLD, vera=hash_password("hers", cost_log2=TODAY - 1))
    await enter(web)
    await enter(web, "vera", "hers")
    true = await stored(h.app)
    forged = hash_password(WRONG, cost_log2=TODAY)
    store = await h.app.context.store.open()

    for row in (
        StoredPassword("olga", forged, true["olga"].proof),
        StoredPassword("olga", true["vera"].hash, true["vera"].proof),
    ):
        await store.call(rows.write_password, row, app=h.app.context.name, now=NOON)
        assert [await enter(web, password=word) for word in (WRONG, "hers")] == [401, 401]
        assert checked[-1] == OLD

    assert await enter(web) == 303  # a row that proves nothing is replaced
    assert checked[-1] == OLD
    assert await enter(web) == 303
    assert checked[-1] == (await stored(h.app))["olga"].hash


async def test_a_row_is_useless_for_guessing_without_the_configuration(h: Harness) -> None:
    await enter(dashboard(h.app, olga=OLD))

    row = (await stored(h.app))["olga"]

    assert not matches(PASSWORD, row.hash)
    assert OLD not in (row.hash, row.proof)


@pytest.mark.parametrize(
    "statement",
    ["DROP TABLE {table}", "ALTER TABLE {table} RENAME COLUMN updated_at TO another"],
    ids=["no table", "not written"],
)
async def test_a_user_whose_row_cannot_be_written_can_log_in(
    h: Harness, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    web = dashboard(h.app, olga=OLD)
    await execute(h.app, statement)

    answers = [await enter(web), await enter(web), await enter(web, password=WRONG)]

    assert answers == [303, 303, 401]
    assert caplog.text.count("logins use the configured hashes") == 1
    assert "scrypt." not in caplog.text


@pytest.mark.parametrize("column", ["hash", "proof", "user"])
@pytest.mark.parametrize("value", ["'ü'", "''", "x'ff00'", "'scrypt.99.99.9.' || 'a'"])
async def test_a_row_of_any_content_locks_no_user_out(h: Harness, url: str, column: str, value: str) -> None:
    web = dashboard(h.app, olga=OLD, vera=OLD)
    await enter(web)
    written = value if url.startswith("sqlite") else value.replace("x'ff00'", "repeat('y', 100000)")
    await execute(h.app, f"""UPDATE {{table}} SET "{column}" = {written}""")  # noqa: S608

    entered = [await enter(web), await enter(web, "vera"), await enter(web, password=WRONG)]

    assert entered == [303, 303, 401]


@pytest.mark.parametrize("work", ["17.1.1", "16.8.1"])
def test_a_hash_is_outdated_by_its_whole_cost(work: str) -> None:
    salt_and_digest = OLD.split(".", 4)[4]

    assert is_outdated(f"scrypt.{work}.{salt_and_digest}")
    assert not is_outdated(f"scrypt.17.8.1.{salt_and_digest}")


@pytest.mark.parametrize("cut", [1, 2, 5, 20])
def test_a_hash_that_was_not_copied_whole_is_refused_where_it_is_configured(cut: int) -> None:
    with pytest.raises(DefinitionError, match="--hash-password"):
        User(OLD[:-cut])


async def test_the_log_names_the_user_of_an_outdated_hash_once(
    h: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    web = dashboard(h.app, olga=OLD)

    await enter(web, password=WRONG)
    assert "olga" not in caplog.text
    for _ in range(3):
        await enter(web)

    assert caplog.text.count("user olga: the configured password hash has a lower cost") == 1
    assert "trax dashboard --hash-password" in caplog.text
    assert not any(secret in caplog.text for secret in ("scrypt.", PASSWORD, WRONG))


async def test_two_logins_at_once_leave_one_row_that_counts(h: Harness, checked: list[str]) -> None:
    first, second = dashboard(h.app, olga=OLD), dashboard(h.app, olga=OLD)

    answers = await asyncio.gather(enter(first), enter(second))

    assert answers == [303, 303]
    (row,) = (await stored(h.app)).values()
    assert await enter(first) == 303
    assert checked[-1] == row.hash


async def test_rehashing_waits_for_its_turn_and_the_loop_continues(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, released, threads = threading.Event(), threading.Event(), list[str]()

    def wait(password: str, *, cost_log2: int) -> str:
        threads.append(threading.current_thread().name)
        started.set()
        released.wait(30)
        return hash_password(password, cost_log2=cost_log2)

    monkeypatch.setattr(access_web, "hash_password", wait)
    monkeypatch.setattr(access_web, "WAITING_AT_MOST", 1)
    login = asyncio.create_task(enter(dashboard(h.app, olga=OLD)))
    await asyncio.to_thread(started.wait, 30)
    with pytest.raises(TooManyChecks), CHECKS.queue(["192.0.2.1"], is_first=True):
        pass
    released.set()

    assert await login == 303
    assert [name.startswith("trax-passwords") for name in threads] == [True]


async def test_no_page_and_no_answer_and_no_audit_shows_a_hash(h: Harness) -> None:
    web = dashboard(h.app, olga=OLD)
    async with browser(web) as olga:
        await log_in(olga, "olga")
        shown = [(await olga.get(path)).text for path in ("/", "/sessions", "/audit", "/settings")]
        shown += [(await olga.get(f"/api/v1/{noun}")).text for noun in ("sessions", "audit", "settings")]

    (row,) = (await stored(h.app)).values()
    audit: list[Any] = await h.app.audit.list()
    assert not any(secret in text for text in shown for secret in ("scrypt.", row.hash, row.proof))
    assert [entry.action for entry in audit] == ["sessions.begin"]
    assert not any(secret in repr(audit) for secret in ("scrypt.", row.hash, row.proof))
