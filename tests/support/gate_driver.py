"""A queue, and the visits of workers to the gate in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.store.test_claim import WORKER, pending
from tests.support import listing

from trax.engine.job_dispatcher import DispatchResult, run_dispatch_cycle
from trax.engine.live_settings import LiveSettings
from trax.engine.routing import Routing
from trax.records import Origin, QueueStatus
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store import groups, settings, workers
from trax.store.queue import work_queue
from trax.store.runs.claim import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records import Metadata
    from trax.store import Store


class GateDriver:
    """What is queued and who runs it, with one worker (number 7, on "box") that comes to the gate."""

    def __init__(self, store: Store, now: datetime) -> None:
        self.store = store
        self.now = now

    def group(self, name: str, **values: Any) -> None:
        self.store.run(groups.get_or_create, [name], now=self.now)
        self.store.run(groups.change, name, {"enabled": True, **values}, now=self.now)

    def queue(
        self, count: int, *, train: str = "work", group: str | None = None, **options: Any
    ) -> list[int]:
        found = self.store.read(groups.get, group) if group else None
        given: dict[str, Any] = {"train": train, "origin": Origin.QUEUE, "input": "{}", **options}
        if found:
            given |= {"group_id": found.id, "group_priority": found.priority}
        entries = [NewEntry(external_id=str(new_external_id()), **given) for _ in range(count)]
        return self.store.run(work_queue.add, entries, now=self.now)

    def pending(self, count: int, **columns: Any) -> list[int]:
        """Runs that were let in earlier, and that nobody has taken."""
        return self.store.run(pending, count, self.now, **{"train": "work", **columns})

    def someone_elsewhere(self, slots: int, *, dispatches: bool = False, **columns: str) -> int:
        row = {**WORKER, "concurrency": slots, "dispatches": dispatches, **columns}
        return self.store.run(workers.register, row, now=self.now)

    def edit(self, name: str, value: str) -> None:
        """An operator changes a setting; no server knows of it yet."""
        self.store.run(settings.write, {name: value}, now=self.now)

    def visit(
        self,
        slots: int,
        *,
        trains: Sequence[str] = ("work",),
        routing: Routing | None = None,
        limit: int | None = None,
        **cpu: Any,
    ) -> DispatchResult:
        """One visit of our worker with so many free slots, by a server that knows of this global limit."""
        live = LiveSettings.load({"max_active_jobs": limit}, {})
        taker = ClaimRequest(7, "box", slots, frozenset(trains), **cpu)
        how: dict[str, Any] = {"settings_from_rows": live.accept, "claim_request": taker}
        return self.store.run(run_dispatch_cycle, self.store, live.current, routing or Routing(), **how)

    def runs(self, state: str | None = None) -> list[Metadata]:
        """Oldest first."""
        found = self.store.read(listing.runs, limit=1000)
        return [run for run in reversed(found) if state is None or run.state == state]

    def queued(self) -> list[int]:
        found = self.store.read(listing.entries, status=QueueStatus.QUEUED, limit=1000)
        return sorted(entry.id for entry in found)
