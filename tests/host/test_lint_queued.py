from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from trax import Trax
from trax.inspect import lint
from trax.inspect.lint import UnreadableInputs
from trax.records import QueueStatus
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from trax.store import Connection


class Old(BaseModel):
    name: str


class New(BaseModel):
    name: int
    town: str


def app_at(url: str, model: type[BaseModel], *more: str) -> Trax:
    app = Trax(url, max_active_jobs=1)

    async def greet(_hello: BaseModel) -> None: ...

    greet.__annotations__["_hello"] = model
    for name in ("greet", *more):
        greet.__name__ = name
        app.train(greet)
    return app


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
async def test_entries_and_pending_runs_are_read_and_equal_troubles_counted(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages of two, so that a page ends among the entries and another among the runs."""
    monkeypatch.setattr(lint, "PAGE", 2)
    old = app_at(url, Old, "leave")
    async with Harness(old) as h:
        await old.queue_many("greet", [{"name": "Ada"}] * 4)
        await old.queue("leave", {"name": "Bob"})
        await h.cycle("job_dispatcher")

    progress: list[int] = []
    looked = lint.lint_queued(app_at(url, New).context, on_progress=progress.append)

    fields = (
        "name: Input should be a valid integer, unable to parse string as an integer",
        "town: Field required",
    )
    assert (looked.count, looked.is_all, progress) == (5, True, [2, 4, 5])
    assert looked.unreadable == [
        UnreadableInputs(train="greet", fields=fields, count=4, example="entry 2"),
        UnreadableInputs(
            train="leave", fields=("this code does not define the train",), count=1, example="entry 5"
        ),
    ]
    async with Harness(old):
        assert len(await old.work_queue.list(status=QueueStatus.QUEUED)) == 4
        assert len(await old.executions.list(state="pending")) == 1


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
async def test_at_most_the_given_number_of_entries_is_read(url: str) -> None:
    old = app_at(url, Old)
    async with Harness(old):
        await old.queue_many("greet", [{"name": "Ada"}] * 5)

    some, all_of_them = (lint.lint_queued(app_at(url, Old).context, limit=most) for most in (3, 9))

    assert (some.count, some.is_all, some.unreadable) == (3, False, [])
    assert (all_of_them.count, all_of_them.is_all) == (5, True)


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
async def test_an_input_type_whose_own_code_fails_is_reported(url: str) -> None:
    class Broken(BaseModel):
        name: str

        def model_post_init(self, _context: object) -> None:
            raise RuntimeError("no town hall")

    old = app_at(url, Old)
    async with Harness(old):
        await old.queue("greet", {"name": "Ada"})
        store = await old.context.store.open()
        before = await store.ask(_entries)

    (found,) = lint.lint_queued(app_at(url, Broken).context).unreadable

    assert "RuntimeError: no town hall" in str(found)
    async with Harness(old):
        assert await (await old.context.store.open()).ask(_entries) == before


def _entries(connection: Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for row in connection.execute(tables(connection).work_queue.select())]
