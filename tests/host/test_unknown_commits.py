"""The answer to a commit is lost: nothing is sent twice, and the caller gets the possible entry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.support.lost_answers import COMMIT, AnswerProxy, answer_proxy

from trax import StoreUnavailable, Trax
from trax.store.store import OPEN_DIRECT_AFTER

if TYPE_CHECKING:
    from collections.abc import Generator

CALLS = 20


@pytest.fixture
def proxy(postgres_url: str) -> Generator[AnswerProxy]:
    with answer_proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
def app(proxy: AnswerProxy) -> Generator[Trax]:
    made = Trax(proxy.url)

    @made.train
    async def greet(name: str) -> None: ...

    made.context.store.open_blocking()
    yield made
    made.close()


def stored(url: str, name: str) -> list[str]:
    """The external ids of the stored entries with this input."""
    with psycopg.connect(url) as admin:
        rows = admin.execute(
            "SELECT external_id FROM trax.work_queue WHERE input::text = %s", [f'"{name}"']
        ).fetchall()
        return [external_id for (external_id,) in rows]


async def warm_up(app: Trax) -> None:
    """Let the event loop of this test get its own connection."""
    for number in range(OPEN_DIRECT_AFTER):
        await app.queue("greet", f"warm {number}")


@pytest.mark.parametrize("warm", [False, True], ids=["thread", "event loop"])
async def test_a_call_whose_answer_is_lost_names_the_entry_that_may_be_stored(
    app: Trax, proxy: AnswerProxy, postgres_url: str, warm: bool
) -> None:
    if warm:
        await warm_up(app)
    proxy.marker = b"Ada"

    with pytest.raises(StoreUnavailable, match="may be stored; look it up") as lost:
        await app.queue("greet", "Ada")

    [external_id] = stored(postgres_url, "Ada")
    assert lost.value.may_be_committed
    assert "autocommit" not in str(lost.value)
    assert external_id in str(lost.value)
    assert [entry.input for entry in await app.work_queue.list(external_id=external_id)] == ["Ada"]
    assert await app.work_queue.list(external_id="nothing") == []


@pytest.mark.parametrize("options", [{}, {"priority": 3}, {"unique": "ada"}], ids=str)
async def test_a_blocking_call_whose_answer_is_lost_raises_may_be_committed(
    app: Trax, proxy: AnswerProxy, postgres_url: str, options: dict[str, Any]
) -> None:
    proxy.marker = b'"Ada"' if "unique" not in options else COMMIT

    with pytest.raises(StoreUnavailable, match="may be stored") as lost:
        await asyncio.to_thread(app.sync.queue, "greet", "Ada", **options)

    assert lost.value.may_be_committed
    assert len(stored(postgres_url, "Ada")) == 1


async def test_a_call_with_a_unique_key_can_be_repeated(
    app: Trax, proxy: AnswerProxy, postgres_url: str
) -> None:
    proxy.marker = COMMIT

    with pytest.raises(StoreUnavailable, match="queue it again: the unique key 'ada'"):
        await app.queue("greet", "Ada", unique="ada")
    entry = await app.queue("greet", "Ada", unique="ada")

    assert stored(postgres_url, "Ada") == [entry.external_id]


async def test_no_call_is_sent_twice_when_an_answer_is_lost_among_many(
    app: Trax, proxy: AnswerProxy, postgres_url: str
) -> None:
    await warm_up(app)
    names = [f"guest {number}." for number in range(CALLS)]
    proxy.marker = names[-1].encode()

    results = await asyncio.gather(*(app.queue("greet", name) for name in names), return_exceptions=True)

    assert proxy.lost == 1
    for name, result in zip(names, results, strict=True):
        [external_id] = stored(postgres_url, name)
        if isinstance(result, BaseException):
            assert isinstance(result, StoreUnavailable)
            assert result.may_be_committed
            assert external_id in str(result)
        else:
            assert result.external_id == external_id
    assert sum(isinstance(result, StoreUnavailable) for result in results) > 1


@pytest.mark.parametrize("marker", [b"begins", b"ends"])
async def test_a_direct_run_continues_when_an_answer_is_lost(
    app: Trax, proxy: AnswerProxy, marker: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    @app.train
    async def work(name: str) -> str:
        if marker == b"ends":
            proxy.marker = COMMIT
        return f"{name}, done"

    await app.run(work, "first")  # the row of this process is inserted
    if marker == b"begins":
        proxy.marker, proxy.then = b"it begins", COMMIT

    assert await app.run(work, "it begins") == "it begins, done"

    assert proxy.lost > 0
    records = await app.executions.list(train="work")
    assert [record.state for record in records] == ["completed", "completed"]
    assert "too late" not in caplog.text


async def test_a_call_that_never_reached_the_server_may_not_be_stored(postgres_url: str) -> None:
    with answer_proxy(postgres_url) as gone:
        app = Trax(gone.url)
    app.train("greet", _nothing())

    with pytest.raises(StoreUnavailable, match="cannot be reached") as failed:
        await app.queue("greet", "Ada")

    assert not failed.value.may_be_committed
    app.close()


def _nothing() -> Any:
    from trax import junction

    @junction
    async def nothing(_name: str) -> None: ...

    return nothing
