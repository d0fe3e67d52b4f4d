"""Secrets on their way to another process: encrypted as they are stored, and read only there."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal

import httpx2
import pytest
from pydantic import BaseModel, SecretStr

from trax import InvalidInput, Retry, Trax, current
from trax.errors import DefinitionError
from trax.masking import HIDDEN
from trax.records import State
from trax.remote.http.workers import HttpWorkers
from trax.testing import Harness
from trax.train.secrets import VARIABLE, generate_key

if TYPE_CHECKING:
    from collections.abc import MutableMapping

SECRET = "a secret for the tests"
PLAIN = "hunter" + str(2) * 3


class Login(BaseModel):
    user: str = "ada"
    token: SecretStr


class Ticket(BaseModel):
    ticket: SecretStr


LOGIN = Login(token=SecretStr(PLAIN))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = generate_key()
    monkeypatch.setenv(VARIABLE, made)
    return made


class Wire:
    """A far side in the same process, and all that is said between the two."""

    def __init__(self, url: str, mode: Literal["database", "response"]) -> None:
        self.said: list[bytes] = []
        self.app = Trax(url, max_active_jobs=None)
        self.endpoint = self.app.http_endpoint(SECRET)
        transport = httpx2.ASGITransport(self.hear)
        self.workers = HttpWorkers("http://far/jobs", SECRET, mode=mode, transport=transport)
        self.seen: list[str] = []
        self.key_there: str | None = None

        @self.app.train(retry=Retry(max_retries=0))
        async def enter(login: Login) -> Ticket:
            word, run = login.token.get_secret_value(), current()
            assert run
            await run.progress(0.5, f"half way with {word}")
            logging.getLogger("far.doors").warning("entering with %s", word)
            self.seen.append(word)
            if login.user == "eve":
                raise LookupError(f"nobody has {word}")
            return Ticket(ticket=SecretStr(word + "!"))

        self.enter = enter

    async def hear(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        async def received() -> Any:
            message = await receive()
            self.said.append(message.get("body", b""))
            return message

        async def sent(message: Any) -> None:
            self.said.append(message.get("body", b""))
            await send(message)

        with pytest.MonkeyPatch.context() as there:
            if self.key_there is not None:
                there.setenv(VARIABLE, self.key_there)
            await self.endpoint(scope, received, sent)

    def assert_quiet(self) -> None:
        assert self.said
        assert PLAIN.encode() not in b"".join(self.said)


async def test_over_http_a_secret_travels_as_it_is_stored(url: str) -> None:
    wire = Wire(url, "response")
    wire.app.submitters.default = wire.workers

    async with asyncio.timeout(60), Harness(wire.app) as h, wire.endpoint:
        await wire.app.queue(wire.enter, LOGIN)
        await wire.app.queue(wire.enter, LOGIN.model_copy(update={"user": "eve"}))
        await h.run_until_idle()
        failed, done = sorted(await wire.app.executions.list(), key=lambda run: run.state, reverse=True)
        lines = await wire.app.executions.logs(done.id)

    assert wire.seen == [PLAIN, PLAIN]
    assert (done.state, done.output) == (State.COMPLETED, {"ticket": HIDDEN})
    assert failed.failure_reason == f"nobody has {HIDDEN}"
    assert PLAIN not in str(failed.stack_trace) + repr(lines)
    wire.assert_quiet()


async def test_a_server_needs_no_key_to_hand_over_where_the_worker_has_it(
    url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(url, "response")
    wire.app.submitters.default = wire.workers

    async with asyncio.timeout(60), Harness(wire.app) as h, wire.endpoint:
        await wire.app.queue(wire.enter, LOGIN)
        monkeypatch.delenv(VARIABLE)
        wire.key_there = key
        await h.run_until_idle()
        (run,) = await wire.app.executions.list()

    assert (run.state, wire.seen) == (State.COMPLETED, [PLAIN])
    wire.assert_quiet()


async def test_a_caller_that_waits_for_a_remote_run_gets_the_secret_of_its_output(url: str) -> None:
    for mode in ("database", "response"):
        wire = Wire(url, mode)

        async with asyncio.timeout(60), Harness(wire.app), wire.endpoint:
            ticket = await wire.app.run(wire.enter, LOGIN, on=wire.workers)

            assert ticket.ticket.get_secret_value() == PLAIN + "!"
            wire.assert_quiet()


async def test_without_a_key_nothing_is_sent(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    for mode in ("database", "response"):
        wire = Wire(url, mode)

        async with Harness(wire.app), wire.endpoint:
            with pytest.raises(InvalidInput, match="token: is a secret, which is stored only encrypted"):
                await wire.app.run(wire.enter, LOGIN, on=wire.workers)

            assert wire.said == []


async def test_a_server_does_not_start_with_a_key_that_is_none(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "not a key")

    with pytest.raises(DefinitionError, match="its value is not 32 bytes in base64"):
        async with Trax(url):
            pass
