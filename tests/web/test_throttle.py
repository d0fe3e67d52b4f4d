"""Wrong passwords and tokens are throttled, and other clients are not."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.web_app import (
    HASH,
    OPERATOR,
    PASSWORD,
    VIEWER,
    access,
    browser,
    csrf_token_on,
    log_in,
    railway,
)

from trax.web import Role, User, Visitor, create
from trax.web import access as access_web
from trax.web.access import PasswordChecks, TooManyChecks, hash_password, is_hash, is_outdated, matches
from trax.web.throttle import KEYS_KEPT, WRONG_SECRETS_KEPT, Attempt, Throttle

if TYPE_CHECKING:
    from collections.abc import Generator

    import httpx2
    from fastapi import FastAPI

    from trax import Trax

WRONG = "a guess"


@pytest.fixture
def app() -> Generator[Trax]:
    app = railway("memory://")
    yield app
    app.close()


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def web(app: Trax, slept: list[float]) -> FastAPI:
    """Its clock stands still, and waiting is noted instead of done."""
    web = create(app, access=access())

    async def note(seconds: float) -> None:
        slept.append(seconds)

    web.state.context.throttle.clock = lambda: 0.0
    web.state.context.throttle.sleep = note
    return web


async def guess(client: httpx2.AsyncClient, name: str = "olga", password: str = WRONG) -> httpx2.Response:
    token = await csrf_token_on(client, "/login")
    return await client.post("/login", data={"name": name, "password": password, "csrf_token": token})


async def statuses(client: httpx2.AsyncClient, count: int, **guessed: str) -> list[int]:
    return [(await guess(client, **guessed)).status_code for _ in range(count)]


async def test_wrong_passwords_are_throttled(web: FastAPI) -> None:
    async with browser(web) as client:
        answers = await statuses(client, 6)
        right = await guess(client, password=PASSWORD)

    assert answers == [401] * 5 + [429]
    assert right.status_code == 429
    assert int(right.headers["retry-after"]) >= 1


async def test_a_guess_is_counted_before_it_is_checked(web: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = list[str]()

    def check(password: str, _configured: str) -> bool:
        checked.append(password)
        return False

    monkeypatch.setattr(access_web, "matches", check)
    monkeypatch.setattr(access_web, "WAITING_FROM_ONE_ADDRESS", 1000)
    monkeypatch.setattr(access_web, "WAITING_AT_MOST", 1000)
    async with browser(web) as client:
        token = await csrf_token_on(client, "/login")
        forms = [
            {"name": "olga", "password": f"guess {number}", "csrf_token": token} for number in range(150)
        ]
        answers = await asyncio.gather(*(client.post("/login", data=form) for form in forms))

    assert len(checked) == 5
    assert sorted(answer.status_code for answer in answers) == [401] * 5 + [429] * 145


async def test_other_addresses_are_not_locked_out_by_guesses(web: FastAPI, slept: list[float]) -> None:
    for number in range(40):
        async with browser(web, peer=f"192.0.2.{number}") as attacker:
            assert set(await statuses(attacker, 6)) == {401, 429}
    slept.clear()

    async with browser(web, peer="198.51.100.1") as olga:
        await log_in(olga, "olga")

    assert slept == [2.0]


async def test_one_address_with_many_names_is_throttled(web: FastAPI) -> None:
    async with browser(web, peer="192.0.2.1") as attacker:
        answers = [(await guess(attacker, name=f"name {number}")).status_code for number in range(21)]

    assert answers == [401] * 20 + [429]


async def test_an_own_password_makes_no_room_for_guessing_others(web: FastAPI) -> None:
    async with browser(web) as vera:
        for number in range(20):
            assert (await guess(vera, name=f"name {number}")).status_code == 401
            if number < 19:
                assert (await guess(vera, name="vera", password=PASSWORD)).status_code == 303
                vera.cookies.delete("trax_session")
        over = await guess(vera, name="name 20")

    assert over.status_code == 429


async def test_behind_a_proxy_the_throttle_counts_the_client_address(app: Trax) -> None:
    web = create(app, access=access(trusted_proxies=["10.0.0.7"]))
    web.state.context.throttle.clock = lambda: 0.0
    attacker, other = {"X-Forwarded-For": "6.6.6.6, 192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}
    async with browser(web, peer="10.0.0.7", headers=attacker) as client:
        answers = await statuses(client, 6)
    async with browser(web, peer="10.0.0.7", headers=other) as client:
        elsewhere = await guess(client)

    assert answers == [401] * 5 + [429]
    assert elsewhere.status_code == 401


async def test_wrong_tokens_are_throttled_by_address(web: FastAPI) -> None:
    async def status_with(client: httpx2.AsyncClient, token: str) -> int:
        answer = await client.get("/api/v1/groups", headers={"Authorization": f"Bearer {token}"})
        return answer.status_code

    async with browser(web, peer="192.0.2.1") as attacker, browser(web, peer="192.0.2.2") as program:
        answers = [await status_with(attacker, f"guess {number}") for number in range(21)]
        right = await status_with(attacker, OPERATOR)
        elsewhere = await status_with(program, OPERATOR)

    assert answers == [401] * 20 + [429]
    assert (right, elsewhere) == (429, 200)


async def test_a_program_with_an_old_token_locks_out_no_other_client(web: FastAPI) -> None:
    async with browser(web, token="an old token of ours") as old, browser(web, token=VIEWER) as new:
        answers = {(await old.get("/api/v1/groups")).status_code for _ in range(50)}
        other = await new.get("/api/v1/groups")

    assert (answers, other.status_code) == ({401}, 200)


async def test_tokens_that_a_function_knows_are_no_guesses(app: Trax) -> None:
    def authorize(request: Any) -> Visitor | None:
        token = request.headers.get("authorization", "")
        return Visitor(token, Role.VIEWER) if "signed" in token else None

    web = create(app, access=access(authorize=authorize))
    async with browser(web) as client:
        answers = {
            (
                await client.get("/api/v1/groups", headers={"Authorization": f"Bearer signed {number}"})
            ).status_code
            for number in range(50)
        }

    assert answers == {200}


def test_delays_grow_and_are_forgotten() -> None:
    now = [0.0]
    throttle = Throttle(clock=lambda: now[0])
    attempt = Attempt.of("olga", "192.0.2.1")

    waits = list[float]()
    for _ in range(13):
        throttle.reserve(attempt)
        waits.append(throttle.reserve(attempt) if len(waits) >= 4 else 0.0)
        now[0] += waits[-1]
    now[0] += 1000

    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert throttle.reserve(attempt) == 0


def test_the_memory_of_the_throttle_is_bounded() -> None:
    throttle = Throttle()

    for number in range(KEYS_KEPT):
        throttle.reserve(Attempt.of(f"{number}" + "x" * 10_000, f"10.{number >> 8}.{number & 255}.1"))
    for number in range(WRONG_SECRETS_KEPT + 10):
        throttle.note_wrong_token(f"10.{number}.0.1", f"guess {number}")

    assert len(throttle.counts) == KEYS_KEPT
    assert len(throttle.wrong) == WRONG_SECRETS_KEPT
    assert max(len(key.name) for key in throttle.counts) <= 200


async def wait_and_check(checks: PasswordChecks, address: str, *, is_first: bool = True) -> bool:
    with checks.queue([address], is_first=is_first):
        return await checks.is_right("guess", HASH)


async def test_passwords_are_checked_one_at_a_time_and_the_loop_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks, at_once, released = PasswordChecks(), list[int](), threading.Event()
    running = 0

    def check(_password: str, _configured: str) -> bool:
        nonlocal running
        running += 1
        at_once.append(running)
        released.wait(30)
        running -= 1
        return True

    monkeypatch.setattr(access_web, "matches", check)
    waiting = [
        asyncio.create_task(wait_and_check(checks, f"192.0.2.{number}"))
        for number in range(access_web.WAITING_AT_MOST)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyChecks):
        await wait_and_check(checks, "198.51.100.1")
    released.set()

    assert await asyncio.gather(*waiting) == [True] * access_web.WAITING_AT_MOST
    assert set(at_once) == {1}
    assert await wait_and_check(checks, "198.51.100.1")


async def test_one_address_cannot_fill_the_whole_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    checks, released = PasswordChecks(), threading.Event()

    def check(_password: str, _configured: str) -> bool:
        return released.wait(30)

    monkeypatch.setattr(access_web, "matches", check)
    waiting = [
        asyncio.create_task(wait_and_check(checks, "192.0.2.1"))
        for _ in range(access_web.WAITING_FROM_ONE_ADDRESS)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyChecks):
        await wait_and_check(checks, "192.0.2.1")
    other = asyncio.create_task(wait_and_check(checks, "192.0.2.2"))
    released.set()

    assert all(await asyncio.gather(*waiting, other))


async def test_addresses_with_failures_leave_places_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    checks, released = PasswordChecks(), threading.Event()

    def check(_password: str, _configured: str) -> bool:
        return released.wait(30)

    monkeypatch.setattr(access_web, "matches", check)
    waiting = [
        asyncio.create_task(wait_and_check(checks, f"192.0.2.{number}", is_first=False))
        for number in range(access_web.WAITING_AFTER_FAILURES)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyChecks), checks.queue(["192.0.2.99"], is_first=False):
        pass
    other = asyncio.create_task(wait_and_check(checks, "198.51.100.1"))
    await asyncio.sleep(0)
    released.set()

    assert all(await asyncio.gather(*waiting, other))


@pytest.mark.parametrize(
    ("network", "free"), [("2001:db8:0:1::{}", 20), ("2001:db8:0:{:x}::1", 40), ("2001:db8:0:{:x}00::1", 80)]
)
def test_one_site_has_no_more_guesses_with_256_networks(network: str, free: int) -> None:
    throttle = Throttle(clock=lambda: 0.0)

    waits = [throttle.reserve(Attempt.of(f"name {n}", network.format(n))) for n in range(256)]
    tokens = Throttle(clock=lambda: 0.0)
    refused = 0
    for number in range(256):
        address = network.format(number)
        if tokens.wait_for_token(address, f"guess {number}"):
            refused += 1
        else:
            tokens.note_wrong_token(address, f"guess {number}")

    assert waits.count(0.0) == free
    assert refused == 256 - free


async def test_while_one_site_guesses_from_256_networks_another_signs_in(
    web: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, checked = threading.Event(), list[str]()

    def check(password: str, _configured: str) -> bool:
        checked.append(password)
        return released.wait(30) and password == PASSWORD

    monkeypatch.setattr(access_web, "matches", check)
    async with browser(web, peer="198.51.100.1") as olga:
        token = await csrf_token_on(olga, "/login")
        known = dict(olga.cookies)
        attackers = [browser(web, peer=f"2001:db8:0:{number:x}::1", cookies=known) for number in range(256)]
        guesses = [
            asyncio.create_task(
                attacker.post("/login", data={"name": f"{n}", "password": WRONG, "csrf_token": token})
            )
            for n, attacker in enumerate(attackers)
        ]
        waiting = set(guesses)
        async with asyncio.timeout(20):
            while len(waiting) > access_web.WAITING_FROM_ONE_ADDRESS:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        entering = asyncio.create_task(
            olga.post("/login", data={"name": "olga", "password": PASSWORD, "csrf_token": token})
        )
        await asyncio.sleep(0)
        released.set()
        entered = await entering
        answers = [answer.status_code for answer in await asyncio.gather(*guesses)]
        for attacker in attackers:
            await attacker.aclose()

    assert entered.status_code == 303
    assert answers.count(429) == 256 - access_web.WAITING_FROM_ONE_ADDRESS
    assert len(checked) == access_web.WAITING_FROM_ONE_ADDRESS + 1


async def test_a_login_beyond_the_queue_is_refused_and_loses_no_attempt(
    web: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browser(web) as client:
        with monkeypatch.context() as patch:
            patch.setattr(access_web, "WAITING_AT_MOST", 0)
            busy = await statuses(client, 10, password=PASSWORD)
        await log_in(client, "olga")

    assert set(busy) == {429}


async def test_an_unknown_name_is_checked_at_the_same_cost(
    app: Trax, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = list[str]()

    def check(_password: str, configured: str) -> bool:
        checked.append(configured)
        return False

    monkeypatch.setattr(access_web, "matches", check)
    web = create(app, access=access(users={"olga": User(HASH, Role.OPERATOR)}))
    async with browser(web) as client:
        known, unknown = await guess(client), await guess(client, name="nobody")

    assert (known.status_code, unknown.status_code) == (401, 401)
    assert checked == [HASH, HASH]


def test_new_hashes_have_the_cost_of_today_and_old_ones_still_count() -> None:
    new, old = hash_password("tea"), hash_password("tea", cost_log2=14)

    assert new.startswith("scrypt.17.8.1.")
    assert (matches("tea", new), matches("tea", old)) == (True, True)
    assert (is_outdated(new), is_outdated(old)) == (False, True)


def test_a_hash_that_would_need_too_much_memory_is_invalid() -> None:
    _, _, salt_and_digest = HASH.partition(".8.1.")

    assert is_hash(f"scrypt.18.8.1.{salt_and_digest}")
    assert not is_hash(f"scrypt.18.99.1.{salt_and_digest}")
