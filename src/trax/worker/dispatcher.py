"""`Dispatcher`: the job dispatcher of one process, with what it remembers between its visits to the gate.

A server, the test harness and a simulation all drive this object. They differ in what calls `turn`, in the
store that runs the transactions, and in the worker that gets the runs.
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Protocol

from trax.engine.finish import select_by_id
from trax.engine.job_dispatcher import bind_quick_dispatch, open_quick_dispatch, run_dispatch_cycle
from trax.engine.routing import FleetCache
from trax.events import Topic
from trax.store.gate_memory import GateMemory
from trax.store.queue import work_queue
from trax.store.quick_gate import bind_opening, read_opening
from trax.store.runs import claim
from trax.store.runs.metadata import finish_statement, parse_finished_ids
from trax.store.types import SQLITE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from trax.engine.job_dispatcher import DispatchResult, QuickDispatch
    from trax.records.result import RunResult
    from trax.store import Connection, Store
    from trax.store.runs.claim import ClaimRequest
    from trax.worker.app_context import AppContext
    from trax.worker.results import WriteResults


class Turns(Protocol):
    """What calls the turns of the dispatcher: the `Loop` of a server, or a simulated one."""

    @property
    def is_requested(self) -> bool:
        """Whether this turn was requested, and is not only a poll."""
        ...

    @property
    def is_stopping(self) -> bool: ...

    def wake(self) -> None: ...


class DispatchWorker(Protocol):
    """The worker of the same process: it gets runs in the transaction that admits them."""

    @property
    def has_enough_backlog(self) -> bool: ...

    @property
    def has_plain_results(self) -> bool: ...

    async def dispatch_and_claim(
        self, dispatch: Callable[[ClaimRequest], Awaitable[DispatchResult]]
    ) -> DispatchResult: ...

    async def flush(self, write: WriteResults | None = None) -> int: ...


class Dispatcher:
    """Visits the gate. Freed capacity wakes it only if the last visit had to refuse an entry."""

    def __init__(
        self,
        context: AppContext,
        store: Store,
        turns: Turns,
        worker: DispatchWorker | None = None,
        *,
        fleets: FleetCache | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._turns = turns
        self._worker = worker
        self._ended_count = 0
        self._has_refused = False
        self._has_leftovers = False
        self._awaits_slots = False
        self._awaits_capacity = False
        """Whether entries wait for the end of a run of this process, and for nothing else."""
        self._fleets = fleets or FleetCache(context.own_routes)
        self._memory = GateMemory()

    def on_runs_ended(self) -> bool:
        """Call after the end of runs is committed. False once the loop stops: then notify other servers."""
        if self._turns.is_stopping:
            return False
        self._ended_count += 1
        if self._has_refused:
            self._turns.wake()
        return True

    def takes_results(self) -> bool:
        """Whether the next cycle writes the results of the worker; if so, wake it.

        While entries wait for the capacity of these runs, one transaction ends the runs and admits entries.
        """
        worker = self._worker
        if not self._awaits_capacity or self._turns.is_stopping or worker is None:
            return False
        if not worker.has_plain_results or worker.has_enough_backlog:
            return False
        self._turns.wake()
        return True

    def on_slots_free(self) -> None:
        """Call when the worker has free slots; the capacity of its last runs may not be free yet."""
        if self._awaits_slots:
            self._turns.wake()

    async def turn(self) -> float | None:
        """Visit the gate if there may be something to do; returns the seconds until the next turn."""
        has_results, self._awaits_capacity = self._awaits_capacity, False
        if self._worker is not None and self._worker.has_enough_backlog:
            self._awaits_slots = True
            return None
        if not self._turns.is_requested:
            seconds = await self._store.ask(_seconds_to_next_entry, self._store, self._worker is not None)
            if seconds != 0:
                return seconds  # nothing is ready: do not take the gate lock
            self._memory.take()  # a poll reads without bounds, to find what they may have skipped
        frees = self._ended_count
        dispatched = await self.visit(writes_results=has_results)
        is_outdated = (
            dispatched.is_limited and frees != self._ended_count
        )  # the cycle may have counted active runs before these ended
        if dispatched.run_again or is_outdated:
            return 0
        return dispatched.next_in_seconds

    async def visit(self, *, writes_results: bool = False) -> DispatchResult:
        """Visit the gate once; with `writes_results` also write the results of the worker."""
        if self._worker is None:
            dispatched = await self._dispatch()
        else:
            dispatch = self._finish_and_dispatch if writes_results else self._dispatch
            dispatched = await self._worker.dispatch_and_claim(dispatch)
        self._has_refused, self._awaits_slots = dispatched.is_limited, dispatched.is_out_of_slots
        self._awaits_capacity = dispatched.has_waiting_entries and not dispatched.is_out_of_slots
        await self._announce_leftovers(dispatched)
        return dispatched

    async def _announce_leftovers(self, dispatched: DispatchResult) -> None:
        """Announce once that ready entries are left: another server may have a free slot now or later.

        Entries queued by this process are not announced otherwise, since it dispatches them itself.
        """
        is_news = dispatched.has_waiting_entries and not self._has_leftovers
        self._has_leftovers = dispatched.has_waiting_entries
        if is_news and not self._fleets.is_single:
            await self._store.call(self._store.announcer.notify_others, Topic.WORK_QUEUE)

    async def _open(self, claim_request: ClaimRequest | None) -> None:
        """Read the terms of quick visits; if these are usual, the next visit is one."""
        store, context = self._store, self._context
        has_limit = context.settings.max_active_jobs is not None
        *_, rows = await store.call_together(*bind_opening(has_global_limit=has_limit))
        opening = read_opening(rows, self._memory)
        self._fleets.workers = opening.fleet.workers
        if claim_request is not None and not opening.settings:
            settings = context.live.accept({})
            open_quick_dispatch(self._memory, opening, claim_request, settings, context.routing)

    async def _dispatch(self, claim_request: ClaimRequest | None = None) -> DispatchResult:
        store, context, began_ns = self._store, self._context, time_ns()
        if store.dialect_name != SQLITE and self._memory.needs_opening:
            await self._open(claim_request)
        quick = self._bind_quick(claim_request)
        if quick is None:
            return await store.call(dispatch_now, store, context, claim_request, self._fleets, self._memory)
        *_, rows = await store.call_together(*quick.statements)
        dispatched = quick.result(rows)
        count_dispatch(context, began_ns, dispatched)
        return dispatched

    async def _finish_and_dispatch(self, claim_request: ClaimRequest) -> DispatchResult:
        """Write the results of the worker and dispatch, in one transaction if both are plain."""
        store, worker, began_ns = self._store, self._worker, time_ns()
        assert worker is not None  # noqa: S101 - else there are no results
        quick = self._bind_quick(claim_request) if worker.has_plain_results else None
        dispatched: DispatchResult | None = None

        async def finish_and_visit(results: Sequence[RunResult]) -> Sequence[RunResult]:
            nonlocal dispatched
            assert quick is not None  # noqa: S101
            *lock, visit = quick.statements
            ending = finish_statement(store.dialect_name, results, now=store.statement_now())
            *_, ended, rows = await store.call_together(*lock, ending, visit)
            dispatched = quick.result(rows)
            return select_by_id(results, parse_finished_ids(ended))

        if await worker.flush(None if quick is None else finish_and_visit):
            self._context.events.emit(Topic.FINISHED)
        if dispatched is None:
            return await self._dispatch(claim_request)
        count_dispatch(self._context, began_ns, dispatched)
        return dispatched

    def _bind_quick(self, claim_request: ClaimRequest | None) -> QuickDispatch | None:
        now = self._store.statement_now()
        return bind_quick_dispatch(self._memory, self._context.settings, claim_request, now=now)


def dispatch_now(
    connection: Connection,
    store: Store,
    context: AppContext,
    claim_request: ClaimRequest | None = None,
    fleets: FleetCache | None = None,
    memory: GateMemory | None = None,
) -> DispatchResult:
    """One dispatch cycle; the current settings are read in the same transaction."""
    began_ns, accept = time_ns(), context.live.accept
    dispatched = run_dispatch_cycle(
        connection,
        store,
        context.settings,
        context.routing,
        settings_from_rows=accept,
        claim_request=claim_request,
        fleets=fleets,
        memory=memory,
    )
    count_dispatch(context, began_ns, dispatched)
    return dispatched


def count_dispatch(context: AppContext, began_ns: int, dispatched: DispatchResult) -> None:
    """Add a visit to the counters and metrics of this process."""
    context.counters.admitted += len(dispatched.metadata_ids)
    if context.telemetry.now is not None:
        context.telemetry.now.record_dispatch_cycle(began_ns, dispatched)


def seconds_until(moment: datetime | None, store: Store, connection: Connection) -> float | None:
    """The seconds until this moment by the clock of the database; 0 if it has passed."""
    return None if moment is None else max(0.0, (moment - store.now(connection)).total_seconds())


def _seconds_to_next_entry(connection: Connection, store: Store, has_worker: bool) -> float | None:  # noqa: FBT001
    """0 when an entry is ready now, else the time until the first delayed one is."""
    if work_queue.is_any_waiting(connection) or (has_worker and claim.has_pending(connection)):
        return 0
    return seconds_until(work_queue.next_delayed_at(connection), store, connection)
