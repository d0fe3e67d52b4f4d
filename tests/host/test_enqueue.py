"""Calls that each queue one entry at the same time share statements, and notice nothing of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.databases import IN_MEMORY_TOO

from trax import StoreUnavailable, Trax
from trax.engine.enqueue import MAX_SHARED
from trax.errors import RowsRefused, StoreError
from trax.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from trax.events import Topic
    from trax.store.pipeline import BoundStatement, Rows

pytestmark = IN_MEMORY_TOO

CALLS = 40


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url)

    @made.train
    async def greet(name: str) -> None: ...

    @made.train
    async def count(number: int) -> None: ...

    made.context.store.open_blocking()
    yield made
    made.close()


class Statements:
    """Counts the statements; the first ones wait until `go_on`, and `fail` may fail any of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[BoundStatement] = []
        self.fail: Callable[[int], Exception | None] = lambda _: None
        self._go_on = asyncio.Event()
        usual: Callable[..., Awaitable[Rows]] = Store.call_alone

        async def call_alone(store: Store, statement: BoundStatement, topic: Topic) -> Rows:
            self.sent.append(statement)
            number = len(self.sent)
            await self._go_on.wait()
            if error := self.fail(number):
                raise error
            return await usual(store, statement, topic)

        monkeypatch.setattr(Store, "call_alone", call_alone)

    async def run(self, *calls: Awaitable[Any]) -> list[Any]:
        """Let the calls begin together, then all that they send."""
        tasks = [asyncio.ensure_future(call) for call in calls]
        await self.until_waiting()
        self._go_on.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    def has(self, number: int, text: str) -> bool:
        """Whether this statement has an input with the text."""
        return text in str(self.sent[number - 1][1]["entries"])

    async def until_waiting(self) -> None:
        """Give every call its turn until no other statement is sent."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return Statements(monkeypatch)


async def inputs(app: Trax) -> list[Any]:
    return [entry.input for entry in reversed(await app.work_queue.list(limit=1000))]


async def test_calls_at_the_same_time_share_statements_and_each_gets_its_entry(
    app: Trax, statements: Statements
) -> None:
    entries = await statements.run(*(app.queue("count", number) for number in range(CALLS)))

    assert len(statements.sent) <= 3
    assert [entry.input for entry in entries] == list(range(CALLS))
    for entry in entries:
        assert await app.work_queue.get(entry.id) == entry
    assert sorted(await inputs(app)) == list(range(CALLS))


async def test_calls_with_other_options_do_not_share(app: Trax, statements: Statements) -> None:
    options: list[dict[str, Any]] = [{}, {"priority": 5}, {"group": "etl"}, {"max_retries": 1}]
    calls = [app.queue("count", number, **options[number % 4]) for number in range(CALLS)]

    entries = await statements.run(*calls, *(app.queue("greet", "Ada") for _ in range(4)))

    assert [(entry.priority, entry.group) for entry in entries[:4]] == [
        (0, None),
        (5, None),
        (0, "etl"),
        (0, None),
    ]
    assert {entry.train for entry in entries[CALLS:]} == {"greet"}
    assert sorted(entry.id for entry in entries) == sorted({entry.id for entry in entries})
    for entry in entries:
        assert await app.work_queue.get(entry.id) == entry


async def test_a_statement_has_a_limited_number_of_entries(app: Trax, statements: Statements) -> None:
    more = MAX_SHARED + 10

    entries = await statements.run(*(app.queue("count", number) for number in range(more)))

    assert len({entry.id for entry in entries}) == more
    assert 8 <= len(statements.sent) <= 13  # what does not fit is sent alone


async def test_a_call_that_is_cancelled_before_its_statement_writes_nothing(
    app: Trax, statements: Statements
) -> None:
    calls = [asyncio.ensure_future(app.queue("count", number)) for number in range(CALLS)]
    await statements.until_waiting()
    calls[20].cancel()
    calls[39].cancel()

    await statements.run(*calls)

    assert [number for number, call in enumerate(calls) if call.cancelled()] == [20, 39]
    assert sorted(await inputs(app)) == [number for number in range(CALLS) if number not in {20, 39}]


async def test_when_all_are_cancelled_nothing_is_sent_and_later_calls_work(
    app: Trax, statements: Statements
) -> None:
    calls = [asyncio.ensure_future(app.queue("count", number)) for number in range(CALLS)]
    await statements.until_waiting()
    sent = len(statements.sent)
    for call in calls[sent:]:
        call.cancel()

    await statements.run(*calls)
    await app.queue("count", 99)

    assert sorted(await inputs(app)) == [*range(sent), 99]
    assert len(statements.sent) == sent + 1


async def test_calls_wait_for_no_statement_whose_calls_were_all_cancelled(
    app: Trax, statements: Statements
) -> None:
    first = [asyncio.ensure_future(app.queue("count", number)) for number in range(2)]
    await statements.until_waiting()
    cancelled = [asyncio.ensure_future(app.queue("count", 9, priority=priority)) for priority in range(9)]
    await statements.until_waiting()
    last = asyncio.ensure_future(app.queue("greet", "Ada"))
    await statements.until_waiting()
    for call in cancelled:
        call.cancel()

    async with asyncio.timeout(60):
        await statements.run(*first, *cancelled, last)

    assert sorted(map(str, await inputs(app))) == ["0", "1", "Ada"]


async def test_a_call_that_is_cancelled_during_its_statement_waits_for_its_end(
    app: Trax, statements: Statements
) -> None:
    names = [f"guest {number}" for number in range(CALLS)]
    calls = [asyncio.ensure_future(app.queue("greet", name)) for name in names]

    def cancel(number: int) -> None:
        if statements.has(number, names[-1]):
            calls[-1].cancel()

    statements.fail = cancel
    await statements.run(*calls)

    assert [name for name, call in zip(names, calls, strict=True) if call.cancelled()] == names[-1:]
    assert sorted(await inputs(app)) == sorted(names)


async def test_an_entry_that_the_database_refuses_does_not_disturb_the_others(
    app: Trax, statements: Statements
) -> None:
    refused = RowsRefused("a value of a row")
    statements.fail = lambda number: refused if statements.has(number, "wrong") else None

    results = await statements.run(*(app.queue("greet", name) for name in ("a", "b", "c", "wrong", "d")))

    assert [type(result).__name__ for result in results].count("RowsRefused") == 1
    assert isinstance(results[3], RowsRefused)
    assert sorted(await inputs(app)) == ["a", "b", "c", "d"]


async def test_when_the_database_is_lost_every_call_fails_and_none_is_sent_twice(
    app: Trax, statements: Statements
) -> None:
    statements.fail = lambda _: StoreUnavailable("connection lost")

    results = await statements.run(*(app.queue("count", number) for number in range(CALLS)))

    assert all(isinstance(result, StoreError) for result in results)
    assert len(statements.sent) <= 3
    assert await inputs(app) == []


async def test_a_group_that_is_new_is_made_once(app: Trax, statements: Statements) -> None:
    entries = await statements.run(*(app.queue("count", number, group="new") for number in range(CALLS)))

    assert {entry.group for entry in entries} == {"new"}
    assert len({entry.id for entry in entries}) == CALLS
    assert [group.name for group in await app.groups.list()] == ["new"]
