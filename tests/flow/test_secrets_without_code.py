"""A secret reaches its train encrypted, also where only its workers have the code, and whoever wrote it."""

# ruff: noqa: S608 - the statements are made of constants

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, RootModel, Secret, SecretStr
from sqlalchemy import text

from trax import InvalidInput, Metadata, Retry, Trax
from trax.app.queue import enqueue_without_code
from trax.masking import HIDDEN
from trax.records import State
from trax.store.schema import tables
from trax.testing import Harness
from trax.train.secrets import VARIABLE, generate_key

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
PLAIN = "hunter" + str(2) * 3


class Door(BaseModel):
    house: str = "first"
    pin: SecretStr


class Visit(BaseModel):
    user: str
    pin: SecretStr
    code: Secret[int] = Secret[int](1)
    doors: list[Door] = []


class Word(RootModel[SecretStr]):
    pass


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = generate_key()
    monkeypatch.setenv(VARIABLE, made)
    return made


@pytest.fixture
def address(url: str, tmp_path: Path) -> str:
    """A database that others can open too."""
    return f"sqlite:///{tmp_path}/kept.db" if url == "memory://" else url


class House(Harness):
    """An app whose trains want secrets, and a process without its code."""

    def __init__(self, url: str) -> None:
        super().__init__(Trax(url), now=NOON)
        self.bare = Trax(url)
        self.seen: list[Any] = []
        self.hooked: list[Any] = []
        self.app.on_started(self.hear)

        @self.app.train(retry=Retry(max_retries=0), aliases=("come_in",))
        async def enter(visit: Visit) -> str:
            self.seen.append(visit)
            return visit.user

        @self.app.train
        async def speak(word: Word) -> None:
            self.seen.append(word.root.get_secret_value())

        @self.app.train
        async def count(number: int) -> int:
            return number

        self.trains = [enter, speak, count]

    def hear(self, record: Metadata) -> None:
        self.hooked.append(record.input)

    async def queue_elsewhere(self, train: str, value: Any) -> None:
        await enqueue_without_code(self.bare.context, train, value, {})

    store_dialect = ""

    async def register(self) -> None:
        """Publish what this app knows, as its worker does."""
        store = await self.app.context.store.open()
        row = {"plain_fields": self.app.context.plain_fields_json, "kind": "worker"}
        await store.call(self.app.context.heartbeat.register, store, row)

    async def everything(self) -> str:
        """All rows of all tables, as text."""
        store = await self.app.context.store.open()
        return await store.ask(load_all)


def load_all(connection: Connection) -> str:
    rows = [
        str(tuple(row))
        for table in tables(connection).all.sorted_tables
        for row in connection.execute(table.select())
    ]
    return "\n".join(rows)


INPUT = {
    "user": "ada",
    "pin": PLAIN,
    "code": 7712345,
    "doors": [{"house": "second", "pin": f"{PLAIN}3"}, {"pin": f"{PLAIN}4"}],
}


async def test_inputs_queued_without_code_are_sealed_by_published_fields(address: str) -> None:
    async with House(address) as h:
        await h.register()
        await h.queue_elsewhere("enter", INPUT)
        await h.queue_elsewhere("come_in", {"user": "eve", "pin": PLAIN})
        await h.queue_elsewhere("speak", PLAIN)
        await h.queue_elsewhere("count", 7)

        everything = await h.everything()
        assert PLAIN not in everything
        assert "7712345" not in everything
        assert "ada" in everything
        await h.run_until_idle()

        runs = await h.app.executions.list()
        assert {run.state for run in runs} == {State.COMPLETED}
        assert PLAIN in h.seen
        visit = next(each for each in h.seen if isinstance(each, Visit) and each.user == "ada")
        assert visit.pin.get_secret_value() == PLAIN
        assert visit.code.get_secret_value() == 7712345
        assert [door.pin.get_secret_value() for door in visit.doors] == [f"{PLAIN}3", f"{PLAIN}4"]
        assert visit.doors[0].house == "second"
        assert PLAIN not in await h.everything()
    h.bare.close()


async def test_a_field_that_no_worker_knows_is_sealed_too(address: str) -> None:
    async with House(address) as h:
        await h.register()
        await h.queue_elsewhere("enter", {"user": "ada", "pim": PLAIN})
        await h.run_until_idle()

        (run,) = await h.app.executions.list()
        assert (run.state, "pin: Field required" in str(run.failure_reason)) == (State.FAILED, True)
        assert PLAIN not in await h.everything()
    h.bare.close()


async def test_an_input_of_a_train_unknown_to_live_workers_is_refused(address: str) -> None:
    async with House(address) as h:
        with pytest.raises(InvalidInput, match="no live worker knows this train") as refused:
            await h.queue_elsewhere("enter", {"user": "ada", "pin": PLAIN})
        await h.queue_elsewhere("nightly", None)
        await h.queue_elsewhere("nightly", {})

        assert PLAIN not in str(refused.value)
        assert len(await h.app.work_queue.list()) == 2
    h.bare.close()


async def test_the_fields_of_a_lost_worker_are_not_used(address: str) -> None:
    async with House(address) as h:
        await h.register()
        await h.advance(hours=1)
        store = await h.bare.context.store.open()
        await store.call(age_workers)

        with pytest.raises(InvalidInput, match="no live worker"):
            await h.queue_elsewhere("enter", {"user": "ada", "pin": PLAIN})
    h.bare.close()


def age_workers(connection: Connection) -> None:
    worker = tables(connection).worker
    connection.execute(worker.update().values(heartbeat_at=datetime(2020, 1, 1, tzinfo=UTC)))


async def test_without_a_key_nothing_is_stored(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    async with House(address) as h:
        await h.register()
        with pytest.raises(InvalidInput, match="pin: is a secret, which is stored only encrypted"):
            await h.queue_elsewhere("enter", {"user": "ada", "pin": PLAIN})
        await h.queue_elsewhere("count", 7)

        assert [entry.train for entry in await h.app.work_queue.list()] == ["count"]
    h.bare.close()


async def test_a_mask_is_refused_as_a_secret(address: str) -> None:
    async with House(address) as h:
        await h.register()
        with pytest.raises(InvalidInput, match="pin: its value is hidden and unknown here"):
            await h.queue_elsewhere("enter", {"user": "ada", "pin": HIDDEN})
    h.bare.close()


async def insert_plainly(h: House, value: Any, train: str = "enter") -> None:
    """As somebody with INSERT on the queue."""

    def insert(connection: Connection) -> None:
        table = tables(connection).work_queue.fullname
        connection.execute(
            text(
                f"INSERT INTO {table} (created_at, ready, external_id, train, input, origin, status) "
                "VALUES ('2027-03-01T12:00:00.000000Z', true, 'x', :train, CAST(:input AS "
                f"{'json' if h.store_dialect == 'postgresql' else 'text'}), 'queue', 'queued')"
            ),
            {"train": train, "input": json.dumps(value)},
        )

    store = await h.app.context.store.open()
    h.store_dialect = store.dialect_name
    await store.call(insert)


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "no key"])
@pytest.mark.parametrize(
    "value", [INPUT, {"user": "ada", "pin": PLAIN, "doors": 7}], ids=["valid", "invalid"]
)
async def test_an_input_stored_in_plain_text_is_hidden_when_it_is_claimed(
    address: str, monkeypatch: pytest.MonkeyPatch, value: Any, *, has_key: bool
) -> None:
    if not has_key:
        monkeypatch.delenv(VARIABLE)
    async with House(address) as h:
        await insert_plainly(h, value)
        assert PLAIN in await h.everything()

        await h.run_until_idle()

        (run,) = await h.app.executions.list()
        is_valid = value is INPUT
        assert run.state is (State.COMPLETED if is_valid else State.FAILED)
        assert [visit.pin.get_secret_value() for visit in h.seen] == ([PLAIN] if is_valid else [])
        everything = await h.everything()
        assert PLAIN not in everything
        assert "7712345" not in everything
        assert isinstance(run, Metadata)
        assert run.input["pin"] == HIDDEN
        assert PLAIN not in str(h.hooked)
    h.bare.close()


async def test_an_encrypted_input_is_stored_unchanged(address: str) -> None:
    async with House(address) as h:
        await h.app.queue("enter", INPUT)
        (before,) = await h.app.work_queue.list()

        await h.run_until_idle()

        (after,) = await h.app.work_queue.list()
        (run,) = await h.app.executions.list()
        assert (after.input, run.input) == (before.input, before.input)
        assert stored(after.input) == stored(before.input) == stored(run.input)
    h.bare.close()


def stored(masked: Any) -> Any:
    return masked["pin"].stored
