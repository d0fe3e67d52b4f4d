"""Progress and log lines of active runs, kept in memory until they are written."""

from __future__ import annotations

import logging
import math
import time
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Final

from trax.errors import RowsRefused, StoreError
from trax.events import Topic
from trax.forks import bind_to_process, fork_safe, keep_inherited
from trax.worker.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from datetime import datetime

    from trax.engine.live_settings import LiveSettings
    from trax.events import Events
    from trax.records.states import CancelReason
    from trax.store import Connection, Store
    from trax.train import Run
    from trax.worker.active_run import RunProgress
    from trax.worker.capture import CapturedLine

logger = logging.getLogger(__name__)
WRITE_SECONDS: Final = 0.5

CHECK_SECONDS: Final = 0.5
"""How old the last check for a stop request may be when a junction begins."""

CLOSE_SECONDS: Final = 5


class FinalBatch:
    """Log lines and progress to write together with the results of some runs."""

    def __init__(self, lines: Sequence[CapturedLine], ended: Sequence[RunProgress]) -> None:
        self._lines = lines
        self._ended = ended
        self.deferred: list[tuple[int, float, str | None]] = []
        """Progress of runs whose record was locked by another transaction. It is written later."""

    def write(self, connection: Connection, *, now: datetime) -> None:
        """Write them. Lines that the database rejects are dropped: they must not prevent the results."""
        from trax.store.faults import savepoint
        from trax.store.runs import run_log

        written = run_log.write(connection, [one.build_note(now) for one in self._ended])
        self.deferred = [
            (one.metadata_id, *one.last_report)
            for one in self._ended
            if one.last_report and one.metadata_id not in written
        ]
        inputs = {one.metadata_id: one.replaced_input[0] for one in self._ended if one.replaced_input}
        run_log.replace_inputs(connection, inputs)
        if not self._lines:
            return
        here = time.time()
        try:
            with savepoint(connection):
                run_log.add(connection, [one.line(now, here) for one in self._lines])
        except RowsRefused as refused:
            logger.warning(
                "run log: %s lines were rejected by the database and dropped: %s", len(self._lines), refused
            )


class RunLog:
    """Progress and log lines of the active runs of an app. Thread-safe."""

    def __init__(self, live: LiveSettings, events: Events) -> None:
        self._live = live
        self._capture = Capture(live, self._is_ours)
        self._running: dict[int, RunProgress] = {}
        self._ended: dict[int, RunProgress] = {}
        self._deferred: list[tuple[int, float, str | None]] = []
        self._store: Store | None = None
        self._writer: _WriterThread | None = None
        self._lock = fork_safe(Lock())
        self._cancels_checked_at = -math.inf
        self.is_manual = False
        """If True, no thread writes: for tests that call `write` themselves."""
        self._events = events
        events.listen(Topic.CANCEL, self._check_cancels_soon)
        bind_to_process(self)

    def reset_in_child(self) -> None:
        """The parent writes what was logged there; the thread that does so exists only there."""
        keep_inherited(self._writer)
        self._store = self._writer = None
        self._running, self._ended, self._deferred = {}, {}, []
        self._capture.take()
        self._capture.detach()
        self._events.listen(Topic.CANCEL, self._check_cancels_soon)

    def open_run(self, store: Store, run: RunProgress) -> None:
        """Start collecting for a run."""
        if self._writer is None or not self._capture.is_attached:
            self._start(store)
        run.store = store
        run.began = began = perf_counter()
        run.stop_check_at = began + CHECK_SECONDS
        self._running[run.metadata_id] = run
        writer = self._writer
        if writer is not None and writer.is_asleep:
            writer.wake()

    def end_run(self, run: RunProgress) -> str | None:
        """Note that a run has ended and will be recorded; return the timings of its junctions as JSON."""
        if run.replaced_input is not None or run.last_report is not None:
            saved_report = None if run.saved_state is None else run.saved_state[1]
            if run.replaced_input is not None or run.last_report is not saved_report:
                self._ended[run.metadata_id] = run
        return None if run.steps is None else run.timings()

    def close_run(self, run: RunProgress) -> None:
        """Stop collecting for a run."""
        self._running.pop(run.metadata_id, None)

    @property
    def has_final_batch(self) -> bool:
        """Whether something may have to be written with the results of runs."""
        return bool(self._ended) or self._has_lines

    @contextmanager
    def final_batch(self, ids: Iterable[int]) -> Generator[FinalBatch | None]:
        """The batch to write with the results of these runs; if the block raises, it is kept for later."""
        if not self.has_final_batch:
            yield None
            return
        ended = [self._ended[run_id] for run_id in ids if run_id in self._ended]
        lines = self._capture.take()
        batch = FinalBatch(lines, ended)
        try:
            yield batch
        except BaseException:
            self._capture.put_back(lines)
            raise
        for one in ended:
            self._ended.pop(one.metadata_id, None)
        self._deferred += batch.deferred
        if batch.deferred and self._writer is not None:
            self._writer.wake()

    def write(self, *, older_than_seconds: float = 0.0) -> None:
        """Write what is new about the active runs, and stop those with a cancellation request."""
        store = self._store
        if store is None:
            return
        self._write_running(store, older_than_seconds)
        self._write_deferred(store)

    def _write_running(self, store: Store, older_than_seconds: float) -> None:
        running = list(self._running.values())
        changed = [
            (one, one.state)
            for one in running
            if one.state != one.saved_state and one.seconds >= older_than_seconds
        ]
        ids_to_check = (
            [one.metadata_id for one in running if not one.is_held] if self._is_cancel_check_due() else []
        )
        if not (changed or ids_to_check or self._has_lines):
            return
        with self.final_batch(()) as batch:
            written, to_stop = store.run(_write, store, [one for one, _ in changed], batch, ids_to_check)
        for one, state in changed:
            if one.metadata_id in written:
                one.saved_state = state
        for metadata_id, why in to_stop.items():
            if metadata_id in self._running:
                self._running[metadata_id].stop(why)

    def _write_deferred(self, store: Store) -> None:
        """One transaction each: waiting for a locked record is safe while holding no other lock."""
        from trax.store.runs.run_log import write_final

        while self._deferred:
            one = self._deferred[0]
            store.run(write_final, *one)
            self._deferred.remove(one)

    def shut_down(self) -> None:
        """Write the rest and stop capturing, until another run starts."""
        with self._lock:
            writer, self._writer = self._writer, None
            self._capture.detach()
        if writer is not None:
            writer.stop()
        with suppress(StoreError):
            self.write()
        self._store = None

    def _start(self, store: Store) -> None:
        with self._lock:
            self._store = store
            if not self._capture.is_attached:
                self._capture.attach()
            if self._writer is None and not self.is_manual:
                self._writer = _WriterThread(self.write, self._is_idle)
                self._writer.start()

    def _is_ours(self, run: Run) -> bool:
        known = self._running.get(run.metadata_id)
        return known is not None and known.external_id == run.external_id

    def _is_idle(self) -> bool:
        return not (self._running or self._has_lines or self._deferred)

    @property
    def _has_lines(self) -> bool:
        """Whether log lines wait to be written, or the number of those that were dropped."""
        return bool(self._capture.waiting or self._capture.dropped)

    def _is_cancel_check_due(self) -> bool:
        """Runs without a worker (`app.run`) have no heartbeat that looks for cancellation requests."""
        now = time.monotonic()
        if (
            now - self._cancels_checked_at < self._live.current.heartbeat_interval.total_seconds()
            and not self.is_manual
        ):
            return False
        self._cancels_checked_at = now
        return True

    def _check_cancels_soon(self) -> None:
        """A cancellation was requested in this process: every run checks before its next junction."""
        self._cancels_checked_at = -math.inf
        for run in list(self._running.values()):
            run.stop_check_at = -math.inf
        writer = self._writer
        if writer is not None:
            writer.write_soon()


def _write(
    connection: Connection,
    store: Store,
    changed: list[RunProgress],
    batch: FinalBatch | None,
    ids_to_check: list[int],
) -> tuple[set[int], dict[int, CancelReason]]:
    from trax.store.runs import run_log

    now = store.now(connection)
    written = run_log.write(connection, [one.build_note(now) for one in changed])
    if batch is not None:
        batch.write(connection, now=now)
    return written, run_log.find_cancel_requests(connection, ids_to_check) if ids_to_check else {}


class _WriterThread:
    """The thread that writes. It sleeps while no run is active."""

    def __init__(self, write: Callable[..., None], is_idle: Callable[[], bool]) -> None:
        self._write = write
        self._is_idle = is_idle
        self._wake_event = Event()
        self._write_event = Event()
        self._is_stopping = False
        self._is_failing = False
        self.is_asleep = False
        self._thread = Thread(target=self._run, name="trax run log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake_event.set()

    def write_soon(self) -> None:
        self._wake_event.set()
        self._write_event.set()

    def stop(self) -> None:
        self._is_stopping = True
        self.write_soon()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._is_stopping:
            self._sleep_while_idle()
            self._write_event.wait(WRITE_SECONDS)
            self._write_event.clear()
            self._turn(0.0 if self._is_stopping else WRITE_SECONDS)

    def _sleep_while_idle(self) -> None:
        self._wake_event.clear()
        self.is_asleep = True  # before the check, so that a run that starts meanwhile wakes this thread
        if self._is_idle() and not self._is_stopping:
            self._wake_event.wait()
        self.is_asleep = False

    def _turn(self, older_than_seconds: float) -> None:
        try:
            self._write(older_than_seconds=older_than_seconds)
            self._is_failing = False
        except StoreError as error:
            if not self._is_failing:
                logger.warning("run log: lines and progress cannot be written; trying again: %s", error)
            self._is_failing = True
        except Exception:
            logger.exception("run log: lines and progress could not be written")
