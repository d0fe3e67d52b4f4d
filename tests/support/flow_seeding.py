"""An app to declare schedules on, the next version of its code, and what tests ask the database about it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel
from sqlalchemy import event, select, text
from tests.support import listing

from trax import Trax, junction
from trax.server.start import start
from trax.store import workers
from trax.store.queue import work_queue
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from trax.engine.seed import SeedPlan
    from trax.records import WorkQueueEntry
    from trax.store import Connection, Store
    from trax.testing import Harness

in_memory = pytest.mark.parametrize("url", ["memory://"], ids=["memory"])
"""For what is decided above the store: once is enough."""

CHANGES = ("INSERT", "UPDATE", "DELETE")


class Table(BaseModel):
    table: str


USERS, ORDERS = Table(table="users"), Table(table="orders")


@junction
def copy(job: Table) -> str:
    return job.table


@junction
def fail(job: Table) -> str:
    raise OSError(job.table)


class Railway(Trax):
    """An app with one train that does its work, and one that never can."""

    def __init__(self, url: str = "memory://", **settings: Any) -> None:
        super().__init__(url, **settings)
        self.sync_table = self.train("sync", copy)
        self.broken = self.train("broken", fail)


async def deploy(h: Harness, code: Trax) -> SeedPlan:
    """Start another version of the code on the same database."""
    context = code.context
    store = await h.app.context.store.open()
    return await start(store, context.declarations.timetable(), context.settings, app=context.name)


async def rows(h: Harness, table: str) -> list[dict[str, Any]]:
    """All rows of a table, in the order they were written."""
    store = await h.app.context.store.open()
    return await store.ask(_rows, table)


async def row(h: Harness, external_id: str) -> dict[str, Any]:
    """A manifest, with everything that stands in its row."""
    (found,) = [each for each in await rows(h, "manifest") if each["external_id"] == external_id]
    return found


async def insert(h: Harness, table: str, **values: Any) -> int:
    """Write a row as it is, and give its id."""
    store = await h.app.context.store.open()
    return await store.call(_insert, table, values)


async def queued(h: Harness, manifest: str | None = None) -> list[WorkQueueEntry]:
    """The entries that wait, oldest first."""
    store = await h.app.context.store.open()
    listed = await store.ask(listing.entries, status=work_queue.QueueStatus.QUEUED, manifest=manifest)
    return listed[::-1]


async def names(h: Harness) -> list[str]:
    return [manifest.external_id for manifest in await h.app.manifests.list()]


async def group_names(h: Harness) -> list[str]:
    return [group.name for group in await h.app.groups.list()]


@contextmanager
def changed_rows(store: Store) -> Generator[list[tuple[str, int]]]:
    """Every statement inside the block that changed a row, with how many it changed."""
    seen: list[tuple[str, int]] = []

    def note(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith(CHANGES) and cursor.rowcount != 0:
            seen.append((statement, cursor.rowcount))

    engine = store._engine  # pyright: ignore[reportPrivateUsage]
    event.listen(engine, "after_cursor_execute", note)
    yield seen
    event.remove(engine, "after_cursor_execute", note)


def _rows(connection: Connection, table: str) -> list[dict[str, Any]]:
    wanted = getattr(tables(connection), table)
    return [dict(each) for each in connection.execute(select(wanted).order_by(text("1"))).mappings()]


def _insert(connection: Connection, table: str, values: dict[str, Any]) -> int:
    wanted = getattr(tables(connection), table)
    return connection.execute(wanted.insert().values(**values).returning(wanted.c.id)).scalar_one()


async def register_server(
    app: Trax, *, declares: str | None, now: datetime, pid: int = 1, name: str = "default"
) -> int:
    """The row of another server of an app, as if it had beaten now."""
    columns = {
        "host": "here",
        "host_environment": "test",
        "host_instance_id": "test",
        "pid": pid,
        "concurrency": 0,
        "trains": "[]",
        "app": name,
        "declares": declares,
    }
    store = await app.context.store.open()
    return await store.call(workers.register, columns, now=now)
