"""A harness of an app with one train of scripted behaviour, and rows written beside the manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, insert, select, update
from tests.support import listing
from tests.support.running import run_queued

from trax import Group, Trax, every
from trax.records import DeadLetterStatus, QueueStatus, State
from trax.records.work_queue_entry import new_external_id
from trax.store.queue import work_queue
from trax.store.schema import Tables, tables
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from trax import DeadLetter, Manifest, WorkQueueEntry
    from trax.store import Connection, Store

MANAGER = "trax.manifest_manager"


class ManagerHarness(Harness):
    """A harness around one app and its train `job`, which notes its input and meets the fate set for it."""

    def __init__(self, url: str, now: datetime, **settings: Any) -> None:
        super().__init__(Trax(url, **settings), now)
        self.ran: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.during: dict[str, Callable[[], Awaitable[Any]]] = {}
        self.told = self._told()
        self.job = self.app.train(self.told)
        self.schedule = self.app.schedule

    @property
    def store(self) -> Store:
        return self.app.context.store.open_blocking()

    def _told(self) -> Callable[[str], Awaitable[str]]:
        async def job(value: str) -> str:
            self.ran.append(value)
            if value in self.during:
                await self.during[value]()
            if value in self.errors:
                raise self.errors[value]
            return value

        return job

    async def manage(self) -> list[str | None]:
        """One cycle; gives the manifests that got an entry, in the order of the entries."""
        managed = await self.cycle("manifest_manager")
        return [entry.manifest for entry in self.entries(managed.queued)]

    def entries(self, ids: list[int]) -> list[WorkQueueEntry]:
        found = [self.store.read(work_queue.get, one) for one in ids]
        return [entry for entry in found if entry is not None]

    def queued(self, manifest: str | None = None) -> list[WorkQueueEntry]:
        """What waits in the queue, oldest first."""
        listed = self.store.read(listing.entries, status=QueueStatus.QUEUED, manifest=manifest, limit=10_000)
        return listed[::-1]

    def entry(self, manifest: str | None = None) -> WorkQueueEntry:
        """The one entry that waits."""
        (only,) = self.queued(manifest)
        return only

    async def manifest(self, external_id: str) -> Manifest:
        return await self.app.manifests.get(external_id)

    async def letters(self, status: DeadLetterStatus | str | None = None) -> list[DeadLetter]:
        """Dead letters, oldest first."""
        return (await self.app.dead_letters.list(status=status))[::-1]

    async def fails(self, external_id: str, times: int = 1, error: Exception | None = None) -> None:
        """Let it run and fail so many times in a row, and each time wait as long as its retry waits."""
        self.errors[external_id] = error or RuntimeError("no luck")
        for _ in range(times):
            await self.cycle("manifest_manager")
            self.now = max(self.now, *(entry.scheduled_at or self.now for entry in self.queued(external_id)))
            assert await run_queued(self) == 1, f"{external_id} did not run"
        del self.errors[external_id]

    async def dead_letter(self, external_id: str) -> DeadLetter:
        """Let it fail until it gives up."""
        manifest = await self.manifest(external_id)
        await self.fails(external_id, max(1, manifest.max_retries) - manifest.failure_count)
        await self.cycle("manifest_manager")
        (letter,) = await self.app.dead_letters.list(
            manifest=external_id, status=DeadLetterStatus.AWAITING_INTERVENTION
        )
        return letter

    def count(self, table: str) -> int:
        def counted(connection: Connection) -> int:
            wanted = getattr(tables(connection), table)
            return connection.execute(select(func.count()).select_from(wanted)).scalar_one()

        return self.store.read(counted)

    def insert_run(
        self, external_id: str | None = None, *, state: State | str = State.IN_PROGRESS, **columns: Any
    ) -> int:
        """A run that no worker of this harness knows; in progress since now unless told otherwise."""
        is_pending = state == State.PENDING
        row: dict[str, Any] = {
            "external_id": new_external_id(),
            "train": "job",
            "state": State(state),
            "created_at": self.now,
            "started_at": None if is_pending else self.now,
            "submitter": "local",
        }
        if external_id is not None:
            row["manifest_id"] = self.manifest_id(external_id)
        return self._insert("metadata", row | columns)

    def insert_entry(self, external_id: str, *, origin: str = "schedule", **columns: Any) -> int:
        row: dict[str, Any] = {
            "external_id": new_external_id(),
            "train": "job",
            "input": f'"{external_id}"',
            "status": QueueStatus.QUEUED,
            "origin": origin,
            "ready": True,
            "manifest_id": self.manifest_id(external_id),
            "created_at": self.now,
        }
        return self._insert("work_queue", row | columns)

    def insert_worker(self, *, heartbeat_at: datetime) -> int:
        row: dict[str, Any] = {
            "host": "elsewhere",
            "host_environment": "server",
            "host_instance_id": "elsewhere-1",
            "pid": 1,
            "concurrency": 1,
            "trains": "[]",
            "started_at": heartbeat_at,
            "heartbeat_at": heartbeat_at,
        }
        return self._insert("worker", row)

    def change_manifest(self, external_id: str, **columns: Any) -> None:
        """Write to the row what no declaration would let through."""
        manifest_id = self.manifest_id(external_id)

        def changed(connection: Connection) -> None:
            manifest = tables(connection).manifest
            connection.execute(update(manifest).where(manifest.c.id == manifest_id).values(**columns))

        self.store.run(changed)

    def schedule_many(self, inputs: dict[str, str], name: str = "many", group: Group | None = None) -> None:
        """Each of these every five minutes."""
        self.app.schedule_many(self.job, name, inputs, every(minutes=5), group=group or name)

    def manifest_id(self, external_id: str) -> int:
        def asked(connection: Connection) -> int:
            manifest = tables(connection).manifest
            query = select(manifest.c.id).where(manifest.c.external_id == external_id)
            return connection.execute(query).scalar_one()

        return self.store.read(asked)

    def _insert(self, table: str, row: dict[str, Any]) -> int:
        def inserted(connection: Connection) -> int:
            target = _table(tables(connection), table)
            return connection.execute(insert(target).values(**row).returning(target.c.id)).scalar_one()

        return self.store.run(inserted)


def _table(known: Tables, name: str) -> Any:
    return getattr(known, name)
