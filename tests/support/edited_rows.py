"""A database in which one column at a time is overwritten by hand, and jobs of others that must go on."""

# ruff: noqa: S608 - the statements are made of names of the schema and of odd values

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from sqlalchemy import Boolean, Float, Integer, text, update
from sqlalchemy.exc import DBAPIError
from tests.support.hostile import SAMPLE, WANTED

from trax import Group, Retry, Trax, TraxError, cron, every, exclude, fire_all
from trax.store.schema import tables, tables_for
from trax.store.types import SQLITE, Utc
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

    from sqlalchemy import Column, Connection
    from tests.support.kept_rows import KeptRows

NOON: Final = datetime(2027, 3, 1, 12, tzinfo=UTC)
PER_COLUMN: Final = SAMPLE if WANTED else 1
AT_ONCE: Final = 1 if WANTED else 4
"""How many columns are overwritten before each restart."""
DUTIES: Final = (
    *("manifest_manager", "job_dispatcher", "hand_over", "work"),
    *("run_log", "totals", "metadata_cleanup", "dead_letter_cleanup"),
)
NOUNS: Final = ("manifests", "groups", "work_queue", "executions", "dead_letters", "audit", "workers")
OURS: Final = {
    "manifest": "train = 'edited'",
    "manifest_group": "name = 'edited'",
    "work_queue": "train IN ('edited', 'unknown')",
    "metadata": "train = 'edited'",
    "dead_letter": "train = 'edited'",
    "worker": "host IN ('gone', 'alive')",
    "setting": "name <> ''",
    "audit": "action <> ''",
}
"""The rows of each table that are overwritten."""


class Order(BaseModel):
    customer: str
    cups: int = 1


ORDER: Final = Order(customer="Ada")
TOO_MUCH: Final = Order(customer="Bob", cups=10)


def railway(url: str) -> Trax:
    app = Trax(url)

    @app.train(retry=Retry(max_retries=1, delay=timedelta(minutes=1)))
    def edited(order: Order) -> str:
        if order.cups > 9:
            raise ValueError("too many cups")
        return order.customer

    @app.train
    def bystander(order: Order) -> str:
        return order.customer

    where: dict[str, Any] = {"group": Group("edited", max_active_jobs=50)}
    weekdays = [exclude.dates("2026-12-25")]
    (
        app.schedule(
            edited, "interval", ORDER, every(hours=1), exclude=weekdays, timeout=timedelta(minutes=1), **where
        ).include(edited, "dependent", ORDER, **where)
    )
    app.schedule(
        edited, "cron", ORDER, cron("0 * * * *", tz="Europe/Berlin"), on_misfire=fire_all(3), **where
    )
    app.schedule(
        edited, "failing", TOO_MUCH, every(hours=1), max_retries=3, retry=Retry(max_retries=3), **where
    )
    app.schedule(edited, "dead", TOO_MUCH, every(hours=1), max_retries=0, **where)
    app.schedule_once(edited, "once", ORDER, delay=timedelta(hours=1), **where)
    (
        app.schedule(bystander, "bystander", ORDER, every(hours=1), group="elsewhere").include(
            bystander, "bystander-dependent", ORDER, group="elsewhere"
        )
    )
    return app


async def populate(url: str) -> None:
    """Rows of every table in every state that a loop reads."""
    app = railway(url)
    async with Harness(app, now=NOON) as h:
        await app.queue("edited", TOO_MUCH, group="edited")
        await h.run_until_idle()
        await h.advance(minutes=1)
        await h.run_until_idle()
        await h.cycle("totals")
        await app.queue("edited", ORDER, group="edited")
        await h.cycle("job_dispatcher")
        store = await app.context.store.open()
        await store.call(_add_workers)
        await app.queue_many("edited", [ORDER, ORDER], group="edited")
        await h.cycle("job_dispatcher")
        unknown = await app.queue("edited", ORDER, group="edited")
        await store.call(_rename_train, unknown.id)
        await h.cycle("job_dispatcher")
        await app.queue("edited", ORDER, group="edited", delay=timedelta(minutes=30))
        await app.queue("edited", ORDER, group="edited", unique="key", priority=4)
        await app.settings.update(max_active_jobs=90, metadata_cleanup_enabled=True)
        await app.groups.update("edited", priority=3)
        await app.queue("bystander", ORDER, group="elsewhere")


def _add_workers(connection: Connection) -> None:
    """One whose run is lost, and a scheduler of another app."""
    t = tables(connection)
    who = {
        "host_environment": "test",
        "host_instance_id": "1",
        "pid": 1,
        "concurrency": 1,
        "trains": '["edited"]',
    }
    gone = connection.execute(
        t.worker.insert()
        .values(host="gone", started_at=NOON, heartbeat_at=NOON - timedelta(hours=1), **who)
        .returning(t.worker.c.id)
    ).scalar_one()
    documents = {"aliases": "[]", "groups": "[]", "routes": "{}", "settings": "{}", "host_labels": "{}"}
    alive = {
        "kind": "scheduler",
        "app": "other",
        "started_at": NOON,
        "heartbeat_at": NOON + timedelta(hours=9),
    }
    connection.execute(t.worker.insert().values(host="alive", **who, **documents, **alive))
    taken = {"state": "in_progress", "worker_id": gone, "started_at": NOON}
    connection.execute(update(t.metadata).where(t.metadata.c.state == "pending").values(**taken))


def _rename_train(connection: Connection, entry_id: int) -> None:
    queue = tables(connection).work_queue
    connection.execute(update(queue).where(queue.c.id == entry_id).values(train="unknown"))


@dataclass(frozen=True)
class Edit:
    table: str
    column: str
    value: str
    """An expression of SQL."""

    def __str__(self) -> str:
        return f"{self.table}.{self.column} = {self.value[:40]}"


def edits(dialect: str, table: str) -> Iterator[Sequence[Edit]]:
    """Odd values for each column, a few columns at once; the same ones in each run."""
    yield from batched(_single_edits(dialect, table), AT_ONCE)


def batched(items: Iterable[Edit], size: int) -> Iterator[Sequence[Edit]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _single_edits(dialect: str, table: str) -> Iterator[Edit]:
    for column in getattr(tables_for(dialect), table).columns:
        if not column.primary_key:
            values = list(_values(dialect, column))
            Random(f"{table}.{column.name}").shuffle(values)  # noqa: S311
            yield from (Edit(table, column.name, value) for value in values[:PER_COLUMN])


def _values(dialect: str, column: Column[Any]) -> Iterator[str]:
    is_sqlite = dialect == SQLITE
    yield "NULL"
    if isinstance(column.type, Utc):
        yield from ("'0001-01-01T00:00:00.000000Z'", "'9999-12-31T23:59:59.999999Z'")
        yield from ("'garbage'", "''", "7", "'2027-03-01'") if is_sqlite else ("'infinity'", "'-infinity'")
    elif isinstance(column.type, Boolean):
        yield from ("true", "false", *(("7", "'garbage'") if is_sqlite else ()))
    elif isinstance(column.type, Integer | Float):
        yield from ("0", "2147483647", "9223372036854775807")
        if isinstance(column.type, Float):
            yield from ("1e300", "9e999") if is_sqlite else ("1e300", "'NaN'", "'Infinity'")
        yield from ("'garbage'", "1.5") if is_sqlite else ()
    else:
        yield from ("''", "'garbage'", "'[]'", "'{}'", "'7'", "'null'", "'[1, {\"x\": null}]'")
        yield from ('\'{"delay": "x", "max_retries": "y"}\'', "'\"\\ud800\"'", f"'{'[' * 20_000}'")
        yield from ("CAST(x'ff41' AS TEXT)", "'a' || char(0) || 'b'") if is_sqlite else ()
    if is_sqlite:
        yield "x'ff00'"


class EditedDatabase:
    """A populated database that is restored before each edit."""

    def __init__(self, url: str, kept: KeptRows) -> None:
        self._url = url
        self._kept = kept
        self.dialect = kept.dialect

    def apply(self, edits: Iterable[Edit]) -> list[Edit]:
        """Restore all rows, and make these edits; returns those that the database does not refuse."""
        self._kept.restore()
        return [edit for edit in edits if self._is_made(edit)]

    def _is_made(self, edit: Edit) -> bool:
        table = getattr(tables_for(self.dialect), edit.table).fullname
        value = edit.value.replace(":", "\\:")
        statement = f'UPDATE {table} SET "{edit.column}" = {value} WHERE {OURS[edit.table]}'
        try:
            with self._kept.engine.begin() as connection:
                connection.execute(text(statement))
        except DBAPIError:
            return False
        return True

    async def problems_of(self, *edits: Edit) -> list[str]:
        """What goes wrong for others, or with an untyped error, after a restart with these edits."""
        made = self.apply(edits)
        if not made:
            return []
        what = ", ".join(map(str, made))
        try:
            async with (
                asyncio.timeout(120),
                Harness(railway(self._url), now=NOON + timedelta(minutes=2)) as h,
            ):
                return [f"{what}: {problem}" for problem in await _live_on(h)]
        except Exception as error:  # noqa: BLE001 - any error is what is looked for
            return [f"{what}: {error!r}"]


async def _live_on(h: Harness) -> list[str]:
    await h.app.queue("bystander", ORDER, group="elsewhere")
    for duty in DUTIES:
        await (h.work() if duty == "work" else h.cycle(duty))
    await h.advance(minutes=62)
    for duty in ("manifest_manager", "job_dispatcher", "work") * 2:
        await (h.work() if duty == "work" else h.cycle(duty))
    problems = [problem for noun in NOUNS async for problem in _list(h.app, noun)]
    runs = await h.app.executions.list(train="bystander", state="completed", limit=50)
    done = [sum(run.manifest == name for run in runs) for name in ("bystander", "bystander-dependent", None)]
    return problems if done == [2, 2, 2] else [*problems, f"runs of bystanders: {done}"]


async def _list(app: Trax, noun: str) -> AsyncGenerator[str]:
    try:
        await getattr(app, noun).list()
    except TraxError:
        pass
    except Exception as error:  # noqa: BLE001
        yield f"{noun}.list: {error!r}"
