from __future__ import annotations

from typing import TYPE_CHECKING

from trax.records.schedule import Interval
from trax.schedule.builder import Declarations
from trax.schedule.declaration import Group, Item
from trax.train import train_of

if TYPE_CHECKING:
    from trax.schedule.declaration import ScheduleKeywords


class SyncTable: ...


class Hello: ...


@train_of
async def sync_table(job: SyncTable) -> str:
    raise NotImplementedError


def plain(job: SyncTable) -> str:
    raise NotImplementedError


def configured(item: Item[Hello]) -> ScheduleKeywords:
    raise NotImplementedError


often, many = Interval(300), {"1": SyncTable()}
declarations = Declarations()
chain = declarations.schedule(sync_table, "a", SyncTable(), often)

declarations.schedule(sync_table, "b", Hello(), often)  # error: reportArgumentType
declarations.schedule(sync_table, "b", SyncTable(), "0 7 * * *")  # error: reportArgumentType
declarations.schedule(plain, "b", SyncTable(), often)  # error: reportArgumentType
declarations.schedule(sync_table, "b", SyncTable(), often, prioritty=3)  # error: reportCallIssue
declarations.schedule(sync_table, "b", SyncTable(), often, on_misfire="never")  # error: reportArgumentType
chain.include(sync_table, "b", Hello())  # error: reportArgumentType
chain.then_include(sync_table, "b", "text")  # error: reportArgumentType
chain.schedule_once(sync_table, "b", Hello())  # error: reportArgumentType
chain.schedule_many(sync_table, "b", {"1": Hello()}, often)  # error: reportArgumentType
chain.include_many(sync_table, "b", [Item("1", Hello())])  # error: reportArgumentType
chain.include_many(sync_table, "b", many, configure_each=configured)  # error: reportArgumentType
Group("g", priority="high")  # error: reportArgumentType
