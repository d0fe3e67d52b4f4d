from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_type

from trax.records.schedule import Cron, Interval
from trax.schedule.builder import Cursor, Declarations
from trax.schedule.declaration import Group, Item
from trax.train import train_of

if TYPE_CHECKING:
    from trax.schedule.declaration import ScheduleKeywords


class SyncTable: ...


class Hello: ...


@train_of
async def sync_table(job: SyncTable) -> str:
    raise NotImplementedError


@train_of
async def greet(hello: Hello) -> None:
    raise NotImplementedError


@train_of
async def tick() -> None:
    raise NotImplementedError


def configured(item: Item[SyncTable]) -> ScheduleKeywords:
    return {"priority": 3, "enabled": item.id != "users"}


hourly, five_minutes = Cron("0 * * * *"), Interval(300)
anything: Any = None
declarations = Declarations()

assert_type(declarations.schedule(sync_table, "a", SyncTable(), five_minutes, group="etl"), Cursor)
assert_type(
    declarations.schedule(sync_table, "b", SyncTable(), hourly)
    .include(greet, "c", Hello(), dormant=True)
    .then_include(greet, "d", input=Hello(), timeout=timedelta(minutes=1))
    .include_many(greet, "many", {"1": Hello()})
    .then_include_many(greet, None, [Item("1", Hello(), depends_on="many-1")])
    .schedule_once(sync_table, "once", SyncTable(), delay=timedelta(minutes=5))
    .schedule(tick, "tick", None, "on_demand"),
    Cursor,
)
declarations.schedule_many(
    sync_table, "by-id", {"1": SyncTable()}, hourly, group=Group("g", max_active_jobs=4)
)
declarations.schedule_many(sync_table, "by-number", {1: SyncTable()}, hourly, configure_each=configured)
declarations.schedule_many(sync_table, "made", (Item(n, SyncTable()) for n in range(3)), hourly, priority=3)
declarations.schedule(sync_table, "any", anything, five_minutes)
assert_type(declarations.group("etl", max_active_jobs=None), Group)
assert_type(declarations.after("elsewhere"), Cursor)
assert_type(Item("1", SyncTable()), Item[SyncTable])
