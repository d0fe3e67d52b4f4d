"""Secrets of pydantic in the dashboard: never shown, and never lost."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, cast

import pytest
from pydantic import BaseModel, Field, RootModel, Secret, SecretBytes, SecretStr
from tests.support.html_reader import Reader
from tests.support.web_app import browser

from trax import Retry, Trax
from trax.masking import HIDDEN
from trax.testing import Harness
from trax.train.secrets import VARIABLE, generate_key
from trax.web import Access, create

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

PLAIN = "hunter" + str(2) * 3


class Door(BaseModel):
    iban: SecretStr


class Login(BaseModel):
    user: str = "ada"
    iban: SecretStr  # no name that would hide it
    doors: list[Door] = []
    note: str = ""


LOGIN = Login(
    iban=SecretStr(PLAIN), doors=[Door(iban=SecretStr(PLAIN + "a")), Door(iban=SecretStr(PLAIN + "b"))]
)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = generate_key()
    monkeypatch.setenv(VARIABLE, made)
    return made


class Desk:
    """An operator who knows of one run, and what later runs were given."""

    def __init__(self, harness: Harness, reader: Reader, seen: list[Login]) -> None:
        self.harness = harness
        self.app = harness.app
        self.reader = reader
        self.seen = seen

    async def rest(self) -> list[Login]:
        """What the runs after the first one were given."""
        await self.harness.run_until_idle()
        return self.seen[1:]


@asynccontextmanager
async def desk(url: str) -> AsyncGenerator[Desk]:
    app, seen = Trax(url), list[Login]()

    @app.train(retry=Retry(max_retries=0))
    def enter(login: Login) -> None:
        seen.append(login)
        raise RuntimeError(f"not with {login.iban.get_secret_value()}")

    async with Harness(app) as harness:
        await app.queue(enter, LOGIN)
        await harness.run_until_idle()
        async with browser(create(app, access=Access(allow_anonymous=True))) as client:
            yield Desk(harness, Reader(client), seen)


PAGES = [
    "/executions/1",
    "/queue/1",
    "/dead-letters/1",
    "/trains/enter?like=1",
    "/executions",
    "/dead-letters",
]
ANSWERS = [
    f"/api/v1{path}" for path in ("/executions/1", "/queue/1", "/dead-letters/1", "/executions?full=true")
]


@pytest.mark.parametrize("path", [*PAGES, *ANSWERS])
async def test_no_page_and_no_answer_shows_a_secret_or_its_ciphertext(url: str, path: str) -> None:
    async with desk(url) as at:
        page = await at.reader.open(path)

    assert page.status == 200
    assert PLAIN not in page.source
    assert "v1:" not in page.source


async def test_the_api_shows_dots(url: str) -> None:
    async with desk(url) as at:
        run = (await at.reader.client.get("/api/v1/executions/1")).json()

    assert run["input"]["iban"] == HIDDEN
    assert [door["iban"] for door in run["input"]["doors"]] == [HIDDEN, HIDDEN]
    assert run["failure_reason"] == f"not with {HIDDEN}"


async def test_a_form_that_is_sent_as_it_came_keeps_the_secrets(url: str) -> None:
    async with desk(url) as at:
        page = await at.reader.open("/trains/enter", like=1)
        sent = await at.reader.send(page, "Queue")

        assert sent.path.startswith("/queue/")
        assert await at.rest() == [LOGIN]


async def test_typed_secrets_are_used_and_the_others_keep_their_places(url: str) -> None:
    async with desk(url) as at:
        page = await at.reader.open("/trains/enter", like=1)
        less = await at.reader.send(page, "Remove doors 1")
        await at.reader.send(less, "Queue", {"in:iban": "other", "in:user": "bob"})

        doors = [Door(iban=SecretStr(PLAIN + "b"))]
        assert await at.rest() == [Login(user="bob", iban=SecretStr("other"), doors=doors)]


async def test_a_secret_cannot_be_moved_to_where_it_could_be_read(url: str) -> None:
    async with desk(url) as at:
        page = await at.reader.open("/trains/enter", like=1)
        refused = await at.reader.send(page, "Queue", {"in:note": f"{HIDDEN} /iban"})

        assert refused.status == 422
        assert PLAIN not in refused.source
        assert await at.rest() == []


async def test_a_mask_of_an_unknown_run_is_refused(url: str) -> None:
    async with desk(url) as at:
        page = await at.reader.open("/trains/enter", like=1)
        refused = await at.reader.send(page, "Queue", {"like": ""})

        assert refused.status == 422
        assert "its value is hidden and unknown here" in refused.text
        assert await at.rest() == []


async def test_a_masked_response_cannot_be_sent_back_as_a_secret(url: str) -> None:
    async with desk(url) as at:
        run = (await at.reader.client.get("/api/v1/executions/1")).json()
        refused = await at.reader.client.post("/api/v1/trains/enter/queue", json={"input": run["input"]})

        assert refused.status_code == 422
        assert await at.rest() == []


class Inner(BaseModel):
    pin: SecretStr = SecretStr(PLAIN)
    user: str = "ada"


class Root(RootModel[SecretStr]):
    pass


class Defaults(BaseModel):
    """Every way to give a secret a default."""

    kept: SecretStr = SecretStr(PLAIN)
    text: SecretStr = cast("SecretStr", PLAIN)
    maybe: SecretStr | None = cast("SecretStr", PLAIN)
    number: Secret[int] = Secret[int](770077)
    raw: SecretBytes = SecretBytes(PLAIN.encode())
    inner: Inner = Inner()
    several: list[SecretStr] = [cast("SecretStr", PLAIN)]
    named: dict[str, SecretStr] = {"x": cast("SecretStr", PLAIN)}
    root: Root = cast("Root", PLAIN)
    shown: SecretStr = Field(SecretStr(PLAIN), examples=[PLAIN])
    password: str = Field(PLAIN, examples=[PLAIN])
    token: Literal["hunter222", "other"] = "hunter222"
    address: str = f"postgresql://u:{PLAIN}@db/x"
    pairs: dict[str, str] = {"token": PLAIN}
    itself: Defaults | None = None
    harmless: str = "harmless"


async def test_no_form_and_no_schema_shows_the_default_of_a_secret(url: str) -> None:
    app = Trax(url)

    @app.train
    def enter(login: Defaults) -> Defaults:
        return login

    async with Harness(app), browser(create(app, access=Access(allow_anonymous=True))) as client:
        sources = [
            (await client.get(path)).text
            for path in (
                "/trains/enter",
                "/api/v1/trains/enter",
                "/api/v1/trains",
                "/api/v1/openapi.json",
            )
        ]

    assert "harmless" in sources[0]
    assert "harmless" in sources[1]
    assert not [source for source in sources if PLAIN in source or "770077" in source]
    assert enter.name in sources[2]


async def test_a_dashboard_without_the_app_stores_no_secret_in_plain_text(url: str, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/kept.db" if url == "memory://" else url
    async with desk(address) as at:
        bare, context = Trax(address), at.app.context
        store = await context.store.open()
        row = {"plain_fields": context.plain_fields_json, "kind": "worker"}
        await store.call(context.heartbeat.register, store, row)
        async with browser(create(bare, access=Access(allow_anonymous=True))) as client:
            body = {"input": {"iban": PLAIN, "user": "eve"}}
            known = await client.post("/api/v1/trains/enter/queue", json=body)
            unknown = await client.post("/api/v1/trains/nobodys/queue", json=body)
            shown = (await client.get(f"/api/v1/queue/{known.json()['id']}")).text
        (login,) = await at.rest()
        bare.close()

    assert (known.status_code, unknown.status_code) == (201, 422)
    assert PLAIN not in known.text + unknown.text + shown
    assert "no live worker knows this train" in unknown.text
    assert (login.iban.get_secret_value(), login.user) == (PLAIN, "eve")
