from __future__ import annotations

from typing import Any, assert_type

from trax.train import (
    Cancelled,
    Codec,
    Done,
    Failed,
    Interrupted,
    Junction,
    Outcome,
    Route,
    ShortCircuit,
    Train,
    extract,
    junction,
    short_circuit,
    train,
    train_of,
    unchecked,
)


class SyncTable:
    rows: Rows


class Rows: ...


class Report: ...


class Client: ...


@junction
async def fetch(job: SyncTable) -> Rows:
    return job.rows


@junction
def load(rows: Rows, job: SyncTable, *, limit: int = 10) -> Report:
    raise NotImplementedError


@junction
async def start() -> SyncTable:
    raise NotImplementedError


@junction
def start_blocking() -> SyncTable:
    raise NotImplementedError


@junction
async def publish(report: Report) -> None:
    raise NotImplementedError


@junction
class Fetch:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, job: SyncTable) -> Rows:
        return job.rows


@junction
class Load:
    def __call__(self, rows: Rows, client: Client) -> Report:
        raise NotImplementedError


@junction
class Start:
    async def __call__(self) -> SyncTable:
        raise NotImplementedError


class Callable:
    async def __call__(self, job: SyncTable) -> Rows:
        return job.rows

    def method(self, rows: Rows) -> Report:
        raise NotImplementedError


async def greet(job: SyncTable) -> str:
    raise NotImplementedError


def greet_blocking(job: SyncTable, client: Client) -> str:
    raise NotImplementedError


assert_type(fetch, Junction[SyncTable, Rows])
assert_type(load, Junction[Rows, Report])
assert_type(start, Junction[None, SyncTable])
assert_type(start_blocking, Junction[None, SyncTable])
assert_type(publish, Junction[Report, None])
assert_type(Fetch, Junction[SyncTable, Rows])
assert_type(Load, Junction[Rows, Report])
assert_type(Start, Junction[None, SyncTable])
assert_type(junction(Callable), Junction[SyncTable, Rows])
assert_type(junction(Callable()), Junction[SyncTable, Rows])
assert_type(junction(Callable().method), Junction[Rows, Report])

assert_type(fetch >> load, Route[SyncTable, Report])
assert_type(start >> fetch >> load >> publish, Route[None, None])
assert_type((start >> fetch) >> (load >> publish), Route[None, None])
assert_type(Fetch >> Load, Route[SyncTable, Report])

assert_type(short_circuit(fetch), ShortCircuit[SyncTable, Rows])
assert_type(short_circuit(fetch) >> load, Route[SyncTable, Report])
assert_type(short_circuit(fetch) >> short_circuit(load), Route[SyncTable, Rows])
assert_type(fetch >> load >> short_circuit(fetch), Route[SyncTable, Report])
assert_type(fetch >> short_circuit(load) >> publish, Route[SyncTable, None])

assert_type(extract(SyncTable, Rows), Route[SyncTable, Rows])
assert_type(extract(SyncTable, Rows) >> load, Route[SyncTable, Report])
assert_type(fetch >> extract(Rows, Client), Route[SyncTable, Client])

assert_type(unchecked(load), Route[Rows, Report])
assert_type(fetch >> unchecked(load), Route[SyncTable, Report])
assert_type(unchecked(short_circuit(fetch)), ShortCircuit[SyncTable, Rows])

sync_table = train("sync_table", fetch >> load, priority=5)
assert_type(sync_table, Train[SyncTable, Report])
assert_type(train("one", fetch), Train[SyncTable, Rows])
assert_type(train("first", fetch >> load, output=Rows), Train[SyncTable, Rows])
assert_type(train("other", load, input=SyncTable), Train[SyncTable, Report])
assert_type(train("both", load, input=SyncTable, output=Rows), Train[SyncTable, Rows])
assert_type(train_of(greet), Train[SyncTable, str])
assert_type(train_of(greet_blocking, name="other", max_retries=1), Train[SyncTable, str])

wider: Train[SyncTable, object] = sync_table
anything: Train[Any, Any] = sync_table
codec: Codec[SyncTable] = Codec(SyncTable, owner="train 'sync_table'")


async def run() -> None:
    assert_type(await sync_table.run(SyncTable()), Report)
    assert_type(sync_table.run_blocking(SyncTable()), Report)
    assert_type(await sync_table.attempt(SyncTable()), Outcome[Report])


def told(outcome: Outcome[Report]) -> str:
    match outcome:
        case Done(value):
            assert_type(value, Report)
            return "done"
        case Failed(error, failure):
            return f"{error} {failure.junction}"
        case Cancelled(reason) | Interrupted(reason):
            return reason
