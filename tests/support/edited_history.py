"""A history in a database, whose rows a test may edit."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, update

from trax.records.worker import WorkerKind
from trax.store.schema import tables, tables_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Table
    from tests.support.kept_rows import KeptRows

    from trax import Trax
    from trax.records.verification import FindingKind, Verification
    from trax.store import Store
    from trax.testing import Harness

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class EditedHistory:
    """An app, its clock, and the rows of its history."""

    def __init__(self, kept: KeptRows, app: Trax, harness: Harness) -> None:
        self.app = app
        self.harness = harness
        self._kept = kept
        self._now = harness.now

    def restore(self) -> None:
        self._kept.restore()
        self.harness.now = self._now

    def lift_check(self, table: str, name: str) -> None:
        """Let rows in that a check refuses."""
        self._kept.lift_check(getattr(tables_for(self._kept.dialect), table).fullname, name)

    def lift_index(self, name: str) -> None:
        """Let rows in that a unique index refuses."""
        self._kept.lift_index(name)

    @property
    def store(self) -> Store:
        return self.app.context.store.open_blocking()

    async def found(self, **period: Any) -> Verification:
        return await self.app.verify(**period)

    async def kinds(self) -> list[tuple[FindingKind, tuple[int, ...]]]:
        return [(finding.kind, finding.ids) for finding in (await self.found()).findings]

    async def ids_of(self, kind: FindingKind) -> list[tuple[int, ...]]:
        """The ids of the findings of this kind."""
        return [ids for found, ids in await self.kinds() if found is kind]

    def edit(self, table: str, row_id: int, **values: Any) -> None:
        """Plant values that no part of Trax would write."""
        self._write(table, lambda of: update(of).where(of.c.id == row_id).values(values))

    def drop(self, table: str, row_id: int) -> None:
        self._write(table, lambda of: delete(of).where(of.c.id == row_id))

    def _write(self, table: str, build: Callable[[Table], Any]) -> None:
        with self._kept.begin_unchecked() as connection:
            connection.execute(build(getattr(tables(connection), table)))

    def rows(self, table: str) -> list[Any]:
        def load(connection: Connection) -> list[Any]:
            of = getattr(tables(connection), table)
            return list(connection.execute(select(of).order_by(of.c.id)))

        return self.store.read(load)

    def add_line(self, run_id: int) -> int:
        """Insert a log line of a run."""
        line = {"created_at": NOON, "level": "information", "logger": "jobs", "message": "hello"}

        def add(connection: Connection) -> int:
            log = tables(connection).log
            statement = insert(log).values(line | {"metadata_id": run_id})
            return connection.execute(statement.returning(log.c.id)).scalar_one()

        return self.store.run(add)

    def repeat(self, table: str, row_id: int, **values: Any) -> int:
        """Insert a copy of a row with other values."""

        def copy(connection: Connection) -> int:
            of = getattr(tables(connection), table)
            row = connection.execute(select(of).where(of.c.id == row_id)).mappings().one()
            given = {name: value for name, value in row.items() if name not in {"id", "written_in"}} | values
            return connection.execute(insert(of).values(given).returning(of.c.id)).scalar_one()

        return self.store.run(copy)


def add_server(app: Trax, harness: Harness) -> int:
    """Register a server that has run for an hour; returns its id."""
    return _add(app, harness, {"kind": WorkerKind.SCHEDULER, "dispatches": True})


def add_worker(app: Trax, harness: Harness) -> int:
    """Register a worker that has run for an hour, and that accepts the trains of the app; returns its id."""
    trains = json.dumps(sorted(app.context.trains.names_and_aliases))
    return _add(app, harness, {"kind": WorkerKind.WORKER, "concurrency": 4, "trains": trains})


def _add(app: Trax, harness: Harness, row: dict[str, Any]) -> int:
    store = app.context.store.open_blocking()
    server_id = store.run(app.context.heartbeat.register, store, row)

    def age(connection: Connection) -> None:
        worker = tables(connection).worker
        connection.execute(
            update(worker).where(worker.c.id == server_id).values(started_at=harness.now - HOUR)
        )

    store.run(age)
    return server_id
