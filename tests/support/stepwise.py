"""The engine, one small step at a time: runs begin in one step and end in another, or never."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel
from sqlalchemy import delete, insert, select, text, update
from tests.support.model import BOOST, MADE_UP, START, Plan, group_of
from tests.support.results import run_result
from tests.support.start_next import start_next

from trax import Trax, cron, every, exclude, fire_all, junction
from trax.engine.finish import apply_results
from trax.engine.manifest_manager import ManagerInput, ManagerResult, run_manager_cycle
from trax.records.result import ResultKind
from trax.records.states import State
from trax.schedule.builder import Declarations
from trax.server.start import start
from trax.store.runs import metadata
from trax.store.schema import tables, tables_for

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from datetime import datetime
    from typing import TypeVar

    from sqlalchemy import Connection
    from tests.support.start_next import StartedRun

    T = TypeVar("T")

FOR_EVER = timedelta(days=10_000)
WINDOWS = {
    "noon": exclude.time_window("12:00", "13:00"),
    "night": exclude.time_window("22:00", "06:00"),
    "tuesday": exclude.days_of_week("tue"),
}
STATES = {
    ResultKind.SUCCESS: State.COMPLETED,
    ResultKind.FAILURE: State.FAILED,
    ResultKind.CANCELLED: State.CANCELLED,
}


class Nothing(BaseModel):
    pass


class End(NamedTuple):
    """How a run is made to end."""

    metadata_id: int
    kind: ResultKind
    gives_up: bool = False
    attempt: int = 1


class Seen(NamedTuple):
    """What the database says, for comparing."""

    manifests: dict[str, Any]
    groups: dict[str, bool]
    entries: list[Any]
    runs: dict[int, str]
    letters: dict[str, int]


class Engine:
    """An app with a clock that only moves when told, a worker that always beats and one that never does."""

    def __init__(self, url: str) -> None:
        self.now: datetime = START
        self.app = Trax(
            url,
            max_work_queue_entries_per_cycle=2,
            dependent_priority_boost=BOOST,
            local_worker_count=1,
        )
        self.app.context.store.clock = lambda: self.now
        self.store = self.app.context.store.open_blocking()
        self.settings = self.app.context.settings
        self.train = self.app.train("work", junction(_work))
        self._loop = asyncio.Runner()
        self._turns = 0

    def close(self) -> None:
        self.app.close()
        self._loop.close()

    def do(self, verb: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(verb)

    def clear(self) -> None:
        """Begin with empty tables, at the start of time."""
        self.now = START
        self.store.run(_clear)
        self.alive = self.store.run(_add_worker, START + FOR_EVER)
        self.gone = self.store.run(_add_worker, START - FOR_EVER)

    def schedule(self, name: str, plan: Plan) -> None:
        """Declare at run time."""
        self.do(self._schedule(name, plan))

    async def _schedule(self, name: str, plan: Plan) -> None:
        manifests, how = self.app.manifests, _options(name, plan)
        if plan.kind == "dependent":
            await manifests.schedule_dependent(self.train, name, Nothing(), str(plan.parent), **how)
        elif plan.kind == "once":
            await manifests.schedule_once(self.train, name, Nothing(), timedelta(minutes=plan.minutes), **how)
        else:
            await manifests.schedule(self.train, name, Nothing(), _when(plan), **how)

    def restart(self, plans: Mapping[str, Plan], opened_groups: Sequence[str]) -> None:
        """Start a server whose code declares these, and says of these groups that they are enabled."""
        code = Declarations(self.app.context.parameters.input_codec)
        for name in opened_groups:
            code.group(name, enabled=True)
        for name, plan in plans.items():
            how = _options(name, plan)
            if plan.kind == "dependent":
                code.after(str(plan.parent)).then_include(self.train, name, Nothing(), **how)
            elif plan.kind == "once":
                code.schedule_once(self.train, name, Nothing(), timedelta(minutes=plan.minutes), **how)
            else:
                code.schedule(self.train, name, Nothing(), _when(plan), **how)
        self.do(start(self.store, code.timetable(), self.settings))

    def forget_retired(self) -> None:
        """Delete what is retired, as if it had never been."""
        self.store.run(_forget_retired)

    def cycle(self) -> ManagerResult:
        turn, self._turns = ManagerInput(self._turns), self._turns + 1
        managed = self.do(self.store.call(run_manager_cycle, self.store, self.settings, turn))
        assert managed is not None
        return managed

    def start_next(self) -> StartedRun | None:
        """Begin the next run, and leave it with the worker that beats."""
        return self.store.run(self._start_next)

    def _start_next(self, connection: Connection) -> StartedRun | None:
        started = start_next(connection, host="here", now=self.now)
        if started is not None:
            _hold(connection, started.metadata_id, self.alive)
        return started

    def lose(self, metadata_id: int) -> None:
        """The worker of this run stops beating."""
        self.store.run(_hold, metadata_id, self.gone)

    def finish(self, ends: Sequence[End]) -> set[int]:
        """End runs in one batch; returns those that were still the worker's to end."""
        return self.store.run(self._finish, ends)

    def _finish(self, connection: Connection, ends: Sequence[End]) -> set[int]:
        of_manifests = _manifests_of(connection, {end.metadata_id for end in ends})
        results = [
            run_result(
                end.metadata_id,
                STATES[end.kind],
                worker_id=self.alive,
                manifest_id=of_manifests[end.metadata_id],
                attempt=end.attempt,
                gives_up=end.gives_up,
            )
            for end in ends
        ]
        ended = metadata.finish(connection, results, now=self.now)
        ours = [result for result in results if result.metadata_id in ended]
        apply_results(connection, ours, self.settings, now=self.now)
        return ended

    def origin_of(self, metadata_id: int) -> str:
        """Who wrote the entry that became this run."""
        return self.store.read(_origin_of, metadata_id)

    def seen(self) -> Seen:
        return self.store.read(_seen)


def _work(nothing: Nothing) -> Nothing:
    return nothing


def _options(name: str, plan: Plan) -> Any:
    how: dict[str, Any] = {
        "group": group_of(name),
        "max_retries": plan.max_retries,
        "max_instances": plan.max_instances,
        "exclude": [WINDOWS[each] for each in plan.exclusions],
        "on_misfire": fire_all(MADE_UP) if plan.misfire == "fire_all" else plan.misfire,
        "enabled": plan.enabled,
    }
    start = "next_occurrence" if plan.starts_later else "now" if plan.starts_now else None
    return how | {"start": start}


def _when(plan: Plan) -> Any:
    if plan.kind == "cron":
        return cron(plan.cron)
    return every(minutes=plan.minutes, anchored=plan.kind == "anchored")


def _clear(connection: Connection) -> None:
    t = tables(connection)
    for table in (t.work_queue, t.dead_letter, t.metadata, t.manifest, t.manifest_group, t.worker):
        connection.execute(delete(table))


def _forget_retired(connection: Connection) -> None:
    t = tables(connection)
    ids = list(connection.execute(select(t.manifest.c.id).where(text("retired_at IS NOT NULL"))).scalars())
    for table in (t.work_queue, t.dead_letter, t.metadata):
        connection.execute(delete(table).where(table.c.manifest_id.in_(ids)))
    connection.execute(delete(t.manifest).where(t.manifest.c.id.in_(ids)))


def _add_worker(connection: Connection, heartbeat_at: datetime) -> int:
    worker = tables(connection).worker
    row = {
        "host": "here",
        "host_environment": "test",
        "host_instance_id": "test",
        "pid": 1,
        "concurrency": 1,
        "trains": "[]",
        "started_at": START,
        "heartbeat_at": heartbeat_at,
    }
    return connection.execute(insert(worker).values(row).returning(worker.c.id)).scalar_one()


def _hold(connection: Connection, metadata_id: int, worker_id: int) -> None:
    runs = tables(connection).metadata
    connection.execute(update(runs).where(runs.c.id == metadata_id).values(worker_id=worker_id))


def _manifests_of(connection: Connection, ids: set[int]) -> dict[int, int]:
    runs = tables(connection).metadata
    query = select(runs.c.id, runs.c.manifest_id).where(runs.c.id.in_(sorted(ids)))
    return {row.id: row.manifest_id for row in connection.execute(query)}


def _origin_of(connection: Connection, metadata_id: int) -> str:
    queue = tables(connection).work_queue
    return connection.execute(select(queue.c.origin).where(queue.c.metadata_id == metadata_id)).scalar_one()


@cache
def _what_is_seen(dialect: str) -> Sequence[Any]:
    t = tables_for(dialect)
    manifest, group, queue, runs, letters = (
        t.manifest,
        t.manifest_group,
        t.work_queue,
        t.metadata,
        t.dead_letter,
    )
    return (
        select(manifest),
        select(group.c.name, group.c.enabled),
        select(queue).where(text("status = 'queued'")).order_by(queue.c.id),
        select(runs.c.id, runs.c.manifest_id).where(text("state IN ('pending', 'in_progress')")),
        select(letters.c.id, letters.c.manifest_id).where(text("status = 'awaiting_intervention'")),
    )


def _seen(connection: Connection) -> Seen:
    queries = _what_is_seen(connection.dialect.name)
    manifests, groups, queued, active, awaiting = (_rows(connection, query) for query in queries)
    names = {row.id: row.external_id for row in manifests}
    return Seen(
        manifests={row.external_id: row for row in manifests},
        groups={row.name: row.enabled for row in groups},
        entries=[(names[row.manifest_id], row) for row in queued],
        runs={row.id: names[row.manifest_id] for row in active},
        letters={names[row.manifest_id]: row.id for row in awaiting},
    )


def _rows(connection: Connection, query: Any) -> list[Any]:
    return list[Any](connection.execute(query).all())
