"""`app.executions`: the record of every attempt, and what people do with it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from trax import InvalidInput, NotFound, Retry, Trax, TraxError, every
from trax.engine.retry import policy_of
from trax.errors import DefinitionError, UnknownTrain
from trax.events import Topic
from trax.records import Origin, State
from trax.records.manifest import RetryPolicy
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy import Connection

    from trax.store import Store

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    app = Trax(url)

    @app.train(priority=3)
    async def greet(name: str) -> str:
        if name == "Mallory":
            raise ValueError(name)
        return name

    @app.train
    async def part(name: str) -> str:
        return await app.run(greet, name)

    app.schedule(greet, "hello", "Ada", every(hours=1), group="morning")
    async with Harness(app, now=NOON) as opened:
        yield opened


async def test_the_list_can_be_narrowed(h: Harness) -> None:
    await h.run_until_idle()
    await h.advance(minutes=1)
    await h.app.queue("greet", "Mallory", group="mail", max_retries=1)
    await h.run_until_idle()
    await h.advance(minutes=1)
    parent = await h.app.queue("part", "Grace")
    await h.run_until_idle()
    outer = await parent.wait()

    async def inputs(**narrowed: Any) -> list[Any]:
        return [run.input for run in await h.app.executions.list(**narrowed)]

    assert await inputs() == ["Grace", "Grace", "Mallory", "Ada"]
    assert await inputs(state="failed") == await inputs(group="mail") == ["Mallory"]
    assert await inputs(manifest="hello") == await inputs(group="morning") == ["Ada"]
    assert await inputs(train="greet") == ["Grace", "Mallory", "Ada"]
    assert await inputs(parent_id=outer.id) == ["Grace"]
    assert await inputs(since=NOON + timedelta(minutes=1), until=NOON + timedelta(minutes=2)) == ["Mallory"]
    assert await inputs(manifest="nobody") == []
    assert await inputs(state="completed", train="greet", limit=1, before=outer.id) == ["Ada"]
    assert len(await h.app.executions.list(admin=True)) > 4


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"limit": 0}, "limit must be a whole number from 1 to 1000"),
        ({"limit": 1001}, "limit must be a whole number from 1 to 1000"),
        ({"state": "faild"}, "did you mean 'failed'"),
        ({"since": datetime(2027, 1, 1)}, "since must be a datetime with a time zone"),  # noqa: DTZ001
        ({"until": "now"}, "until must be a datetime with a time zone"),
        ({"parent_id": -1}, "parent_id must be an id"),
    ],
)
async def test_an_invalid_filter_is_refused(h: Harness, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(TraxError, match=said):
        await h.app.executions.list(**asked)


async def test_a_run_in_progress_is_requested_to_cancel_and_notified_at_once(h: Harness) -> None:
    began, heard = asyncio.Event(), asyncio.Event()
    h.app.context.events.listen(Topic.CANCEL, heard.set)

    @h.app.train
    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(h.app.run(forever, None))
    await began.wait()
    (run,) = await h.app.executions.list(state="in_progress")

    asked = await h.app.executions.cancel([run.id, 999])
    twice = await h.app.executions.cancel([run.id])

    assert (asked, twice) == ([run.id], [])
    assert (await h.app.executions.get(run.id)).cancel_requested
    await asyncio.wait_for(heard.wait(), 30)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_ended_run_cannot_be_cancelled(h: Harness) -> None:
    await h.run_until_idle()
    (run,) = await h.app.executions.list()

    assert await h.app.executions.cancel([run.id]) == []
    assert await h.app.executions.get(run.id) == run


async def test_a_run_can_be_run_again(h: Harness) -> None:
    failing = await h.app.queue("greet", "Mallory", group="mail", priority=9, max_retries=1)
    await h.run_until_idle()
    first = await failing.wait()

    again = await h.app.executions.rerun(first.id)

    assert (again.train, again.input, again.group, again.priority) == ("greet", "Mallory", "mail", 9)
    assert (again.origin, again.manifest, again.id != failing.id) == (Origin.RERUN, None, True)
    await h.run_until_idle()
    assert (await h.app.executions.list(state="failed", limit=1))[0].external_id == again.external_id


async def test_running_a_manifests_run_again_leaves_its_schedule_alone(h: Harness) -> None:
    await h.run_until_idle()
    before = await h.app.manifests.get("hello")
    (run,) = await h.app.executions.list(manifest="hello")

    entry = await h.app.executions.rerun(run.id)
    await h.run_until_idle()

    assert (entry.input, entry.group) == ("Ada", "morning")
    assert (await entry.wait()).state is State.COMPLETED
    assert await h.app.manifests.get("hello") == before


def carried(store: Store, entry_id: int) -> tuple[Any, ...]:
    """What an entry carries beside its input: limits, policy, key."""

    def asked(connection: Connection) -> tuple[Any, ...]:
        queue = tables(connection).work_queue
        names = ("timeout_seconds", "retry", "unique_key", "priority", "group_id")
        query = select(*(queue.c[name] for name in names)).where(queue.c.id == entry_id)
        return tuple(connection.execute(query).one())

    return store.read(asked)


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("has_code", [True, False])
async def test_a_rerun_keeps_the_limits_of_the_run_for_any_caller(
    h: Harness, url: str, has_code: bool
) -> None:
    store = await h.app.context.store.open()
    how = {"timeout": timedelta(seconds=7), "retry": Retry(max_retries=1, jitter=0.5), "unique": "ada"}
    first = await h.app.queue("greet", "Ada", group="mail", priority=9, **how)  # pyright: ignore[reportArgumentType]
    await h.run_until_idle()
    run = await first.wait()
    other = Trax(url)  # as a command or a dashboard of its own

    again = await (h.app if has_code else other).executions.rerun(run.id)
    other.close()

    limit, retry, key, *_ = carried(store, again.id)
    assert (limit, key, RetryPolicy.from_json(retry)) == (
        7,
        "ada",
        policy_of(Retry(max_retries=1, jitter=0.5)),
    )
    assert (again.group, again.priority, again.origin) == ("mail", 9, Origin.RERUN)


async def test_a_manifests_run_that_is_run_again_keeps_the_manifests_limits(h: Harness) -> None:
    limit = timedelta(seconds=30)
    await h.app.manifests.schedule(
        h.app.trains.get("greet"), "limited", "Grace", every(hours=1), timeout=limit, max_retries=7
    )
    await h.run_until_idle()
    (run,) = await h.app.executions.list(manifest="limited")

    again = await h.app.executions.rerun(run.id)

    seconds, retry, *_ = carried(await h.app.context.store.open(), again.id)
    policy = RetryPolicy.from_json(retry)
    assert policy is not None
    assert (seconds, policy.max_retries) == (30, 7)


@pytest.mark.parametrize(
    ("columns", "kind", "said"),
    [
        ({"input": None}, TraxError, "its input was not saved"),
        ({"input": '{"_truncated": true, "_maxBytes": 5}'}, TraxError, "its input was too large"),
        ({"input": '{"number": 7}'}, InvalidInput, "train 'greet': invalid input"),
        ({"train": "gret"}, UnknownTrain, "did you mean 'greet'"),
    ],
)
async def test_a_run_that_cannot_be_repeated_is_refused(
    h: Harness, columns: dict[str, Any], kind: type[Exception], said: str
) -> None:
    def spoil(connection: Connection) -> None:
        connection.execute(tables(connection).metadata.update().values(columns))

    await h.run_until_idle()
    (run,) = await h.app.executions.list()
    h.app.context.store.open_blocking().run(spoil)

    with pytest.raises(kind, match=said):
        await h.app.executions.rerun(run.id)

    assert await h.app.work_queue.list(origin="rerun") == []


async def test_an_unknown_run_raises_not_found(h: Harness) -> None:
    with pytest.raises(NotFound, match="there is no execution 99"):
        await h.app.executions.rerun(99)
    with pytest.raises(NotFound, match="there is no execution 99"):
        await h.app.executions.get(99)
    with pytest.raises(DefinitionError, match="metadata_id must be an id"):
        await h.app.executions.get("1")  # pyright: ignore[reportArgumentType]
