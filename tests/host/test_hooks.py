from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from trax import Cancel, Metadata, Retry, RunTimedOut, Trax
from trax.errors import DefinitionError
from trax.records import State
from trax.store.runs import metadata
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from trax.store import Connection

NAMES = ("on_started", "on_completed", "on_failed", "on_cancelled")
ONCE = Retry(max_attempts=1)


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    async with Harness(Trax(url)) as harness:
        yield harness


async def run(h: Harness, train: Any, value: Any, *, queued: bool) -> None:
    """Run it to its end, whatever that is."""
    if queued:
        await h.app.queue(train, value)
        await h.run_until_idle()
    else:
        await asyncio.gather(h.app.run(train, value), return_exceptions=True)


def listener(heard: list[str], name: str) -> Callable[..., Any]:
    def listen(record: Metadata, *error: Exception) -> None:
        heard.append(" ".join([name, record.state, *map(str, error)]))

    return listen


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize(
    ("ending", "name", "told"),
    [
        (None, "on_completed", "completed"),
        (ValueError("x"), "on_failed", "failed x"),
        (RunTimedOut("too slow"), "on_failed", "failed too slow"),
        (Cancel("enough"), "on_cancelled", "cancelled"),
    ],
)
async def test_hooks_are_called_once_each_the_apps_before_the_trains_own(
    h: Harness,
    ending: Exception | None,
    name: str,
    told: str,
    queued: bool,
) -> None:
    heard: list[str] = []
    for each in (*NAMES, "on_state_changed"):
        getattr(h.app, each)(listener(heard, f"app {each}"))

    @h.app.train(retry=ONCE, **{each: listener(heard, f"own {each}") for each in NAMES})  # pyright: ignore[reportArgumentType]
    async def work(_: int) -> None:
        if ending:
            raise ending

    await run(h, work, 1, queued=queued)

    state = told.split(maxsplit=1)[0]
    assert heard == [
        "app on_started in_progress",
        "app on_state_changed in_progress",
        "own on_started in_progress",
        f"app {name} {told}",
        f"app on_state_changed {state}",
        f"own {name} {told}",
    ]


@pytest.mark.parametrize("queued", [False, True])
async def test_hooks_see_what_the_record_does_not_keep(url: str, queued: bool) -> None:
    async with Harness(Trax(url, save_outputs=False, save_inputs=queued)) as h:
        seen: list[tuple[Any, Any]] = []

        @h.app.on_completed
        async def completed(record: Metadata) -> None:
            seen.append((record.input, record.output))

        @h.app.train
        async def double(text: str) -> str:
            return 2 * text

        await run(h, double, "ab", queued=queued)

        (record,) = await h.app.executions.list()
        assert seen == [("ab", "abab")]
        assert record.output is None
        assert completed


@pytest.mark.parametrize("queued", [False, True])
async def test_a_hook_that_raises_stops_neither_the_run_nor_the_next_hook(
    h: Harness,
    queued: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    def broken(_record: Metadata) -> None:
        raise LookupError("broken hook")

    h.app.on_started(broken)
    h.app.on_completed(broken)
    h.app.on_completed(listener(heard, "second"))

    @h.app.train(on_completed=listener(heard, "own"))
    async def work(number: int) -> int:
        return number

    await run(h, work, 1, queued=queued)

    (record,) = await h.app.executions.list()
    assert record.state is State.COMPLETED
    assert heard == ["second completed", "own completed"]
    assert "train 'work': the app's hook on_started failed; the run is not affected" in caplog.text


async def test_without_hooks_nothing_is_read(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    @h.app.train(on_failed=print)
    async def work(number: int) -> int:
        return number

    reads: list[int] = []

    def read(_: Connection, metadata_id: int) -> None:
        reads.append(metadata_id)

    monkeypatch.setattr(metadata, "get", read)
    await run(h, work, 1, queued=False)
    await run(h, work, 1, queued=True)

    assert reads == []


async def test_a_shared_on_queue_may_keep_an_entry_from_being_written(h: Harness) -> None:
    asked: list[str] = []

    @h.app.on_queue
    async def look(record: Metadata) -> None:
        asked.append(f"{record.train} {record.input} {record.state}")
        if record.input == 2:
            raise PermissionError("not that one")

    @h.app.train
    async def work(_: int) -> None: ...

    await h.app.queue(work, 1)
    with pytest.raises(PermissionError, match="not that one"):
        await h.app.queue(work, 2)

    assert asked == ["work 1 pending", "work 2 pending"]
    assert [entry.input for entry in await h.app.work_queue.list()] == [1]
    assert look


async def test_a_hook_must_be_callable(h: Harness) -> None:
    wrong: Any = "not a function"

    with pytest.raises(DefinitionError, match="on_failed requires a callable"):
        h.app.on_failed(wrong)
