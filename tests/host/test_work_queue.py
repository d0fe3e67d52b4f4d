"""`app.work_queue`: looking at entries, page by page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import NotFound, Trax, TraxError, every
from trax.errors import DefinitionError
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    app = Trax(url)

    @app.train
    async def greet(name: str) -> str:
        return name

    @app.train
    async def part(name: str) -> str:
        return name

    app.schedule(greet, "hello", "Ada", every(hours=1), group="morning")
    async with Harness(app, now=NOON) as opened:
        yield opened


async def test_an_entry_is_found_by_its_id(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada", delay=timedelta(minutes=1), group="mail")

    assert await h.app.work_queue.get(entry.id) == entry


@pytest.mark.parametrize(("wrong", "kind"), [(99, NotFound), ("1", DefinitionError), (True, DefinitionError)])
async def test_an_unknown_entry_raises_not_found(h: Harness, wrong: Any, kind: type[TraxError]) -> None:
    with pytest.raises(kind, match=r"there is no entry 99|must be an id"):
        await h.app.work_queue.get(wrong)


async def test_the_list_can_be_narrowed(h: Harness) -> None:
    await h.cycle("manifest_manager")
    await h.cycle("job_dispatcher")
    waiting = await h.app.queue("greet", "Ada")
    delayed = await h.app.queue("part", "Grace", delay=timedelta(hours=1), group="mail")
    withdrawn = await h.app.queue("part", "Mary", group="mail")
    await h.app.work_queue.cancel([withdrawn.id])

    async def inputs(**narrowed: Any) -> list[Any]:
        return [entry.input for entry in await h.app.work_queue.list(**narrowed)]

    everyone = await h.app.work_queue.list()
    scheduled = everyone[-1]
    assert everyone == [
        await h.app.work_queue.get(withdrawn.id),
        delayed,
        waiting,
        scheduled,
    ]
    assert await inputs(status="queued") == ["Grace", "Ada"]
    assert await inputs(status="cancelled") == ["Mary"]
    assert await h.app.work_queue.list(status="dispatched") == [scheduled]
    assert await h.app.work_queue.list(manifest="hello") == [scheduled]
    assert await h.app.work_queue.list(group="morning", origin="schedule") == [scheduled]
    assert await inputs(train="part", group="mail") == ["Mary", "Grace"]
    assert await inputs(train="part", status="queued") == ["Grace"]
    assert await inputs(manifest="nobody") == await inputs(group="nobody") == []


async def test_the_list_is_read_page_by_page(h: Harness) -> None:
    entries = await h.app.queue_many("greet", ["a", "b", "c", "d", "e"])

    first = await h.app.work_queue.list(limit=2)
    second = await h.app.work_queue.list(limit=2, before=first[-1].id)
    third = await h.app.work_queue.list(limit=2, before=second[-1].id)

    assert [*first, *second, *third] == entries[::-1]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"limit": 0}, "limit must be a whole number from 1 to 1000"),
        ({"limit": 1001}, "limit must be a whole number from 1 to 1000"),
        ({"limit": "10"}, "limit must be"),
        ({"before": "x"}, "before must be an id"),
        ({"status": "qeued"}, "did you mean 'queued'"),
        ({"origin": "nobody"}, "invalid origin 'nobody'; expected one of schedule, retry"),
    ],
)
async def test_an_invalid_filter_is_refused(h: Harness, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(TraxError, match=said):
        await h.app.work_queue.list(**asked)


async def test_only_what_is_queued_is_withdrawn(h: Harness) -> None:
    admitted = await h.app.queue("greet", "Ada")
    await h.cycle("job_dispatcher")
    waiting = await h.app.queue("greet", "Grace")
    delayed = await h.app.queue("greet", "Mary", delay=timedelta(hours=1))

    first = await h.app.work_queue.cancel([admitted.id, waiting.id, delayed.id, delayed.id, 999])
    second = await h.app.work_queue.cancel([admitted.id, waiting.id, delayed.id])

    assert (first, second) == (2, 0)
    assert (await h.app.work_queue.get(admitted.id)).status == "dispatched"
    assert (await h.app.work_queue.get(waiting.id)).status == "cancelled"


async def test_a_withdrawn_entry_never_runs(h: Harness) -> None:
    withdrawn = await h.app.queue("part", "Ada", delay=timedelta(minutes=1))
    await h.app.work_queue.cancel([withdrawn.id])
    await h.advance(minutes=2)

    await h.run_until_idle()

    assert await h.app.executions.list(train="part") == []


@pytest.mark.parametrize("ids", [7, "7", ["7"], [None], [2**63]])
async def test_an_invalid_list_of_ids_is_refused(h: Harness, ids: Any) -> None:
    with pytest.raises(DefinitionError, match=r"ids must be|must be an id"):
        await h.app.work_queue.cancel(ids)
    with pytest.raises(DefinitionError, match=r"ids must be|must be an id"):
        await h.app.executions.cancel(ids)
