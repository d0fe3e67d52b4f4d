"""What an app's trains look like to a type checker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from pydantic import BaseModel

from trax import Metadata, Train, Trax, WorkQueueEntry, junction
from trax.worker.entry import QueuedEntry


class SyncTable(BaseModel):
    table: str


class Rows(BaseModel):
    count: int


class Report(BaseModel):
    text: str


class Mailer: ...


@junction
async def extract(job: SyncTable) -> Rows:
    return Rows(count=len(job.table))


@junction
def load(rows: Rows, job: SyncTable) -> Report:
    return Report(text=f"{rows.count} {job.table}")


app = Trax("memory://")
app.provide(Mailer, Mailer)

sync_table = app.train("sync_table", extract >> load, timeout=timedelta(minutes=10))


@app.train
async def greet(name: str) -> int:
    return len(name)


@app.train(max_attempts=5)
def mail(address: str, mailer: Mailer) -> None:
    print(address, mailer)


@app.train
def tick() -> int:
    return 1


assert_type(sync_table, Train[SyncTable, Report])
assert_type(greet, Train[str, int])
assert_type(mail, Train[str, None])
assert_type(tick, Train[None, int])


async def use() -> None:
    assert_type(await app.run(sync_table, SyncTable(table="users")), Report)
    assert_type(await app.queue(greet, "Ada", priority=5), QueuedEntry)
    assert_type(await app.queue("greet", {"any": "thing"}, unique="key"), QueuedEntry)
    assert_type(await app.queue_many(greet, ["Ada", "Grace"]), list[QueuedEntry])
    entry: WorkQueueEntry = await app.queue(greet, "Ada")
    print(entry)
    assert_type(await (await app.queue(greet, "Ada")).wait(timeout=30), Metadata)
    assert_type(app.sync.run(greet, "Ada"), int)
    assert_type(app.sync.run("greet", "Ada"), Any)
    assert_type(app.sync.queue(greet, "Ada"), QueuedEntry)
