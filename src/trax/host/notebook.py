"""What runs leave behind while they run: collected in memory, written for many of them at once.

A run that ends takes its last lines and words along in the transaction that ends it. For those that go on, a
thread writes what is new twice a second: a thread, so that a train that blocks the event loop shows too.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from trax.errors import StoreError
from trax.events import Topic
from trax.host.capture import Capture
from trax.host.progress import RunProgress
from trax.store import logs, progress
from trax.store.savepoint import Refused, savepoint

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from datetime import datetime

    from trax.events import Events
    from trax.host.capture import Caught
    from trax.host.live_settings import LiveSettings
    from trax.records.states import CancelReason
    from trax.store import Connection, Store
    from trax.train import Cancellation, Run

logger = logging.getLogger(__name__)

WRITE_SECONDS: Final = 0.5
CLOSE_SECONDS: Final = 5


class LastWords:
    """What is written together with the end of some runs."""

    def __init__(self, caught: Sequence[Caught], ended: Sequence[RunProgress]) -> None:
        self._caught = caught
        self._ended = ended
        self.passed_over: list[tuple[int, float, str | None]] = []
        """What is told by runs whose record somebody else held in that moment. It follows by itself."""

    def write(self, connection: Connection, *, now: datetime) -> None:
        """Lines that the database refuses are dropped: they must not keep a run from being ended."""
        written = progress.write(connection, [one.note(now) for one in self._ended])
        self.passed_over = [
            (one.metadata_id, *one.told) for one in self._ended if one.told and one.metadata_id not in written
        ]
        inputs = {one.metadata_id: one.replaced_input[0] for one in self._ended if one.replaced_input}
        progress.replace_inputs(connection, inputs)
        if not self._caught:
            return
        here = time.time()
        try:
            with savepoint(connection):
                logs.add(connection, [one.line(now, here) for one in self._caught])
        except Refused as refused:
            logger.warning("%s log lines were refused, and are lost: %s", len(self._caught), refused)


class Notebook:
    """The running runs of an app, and the lines they logged. Any thread may use it."""

    def __init__(self, live: LiveSettings, events: Events) -> None:
        self._live = live
        self._capture = Capture(live, self._is_ours)
        self._running: dict[int, RunProgress] = {}
        self._ended: dict[int, RunProgress] = {}
        self._passed_over: list[tuple[int, float, str | None]] = []
        self._store: Store | None = None
        self._writer: _Writer | None = None
        self._lock = Lock()
        self._looked_at = -math.inf
        self.by_hand = False
        """Whether nothing is written by itself, for tests that drive each duty."""
        events.listen(Topic.CANCEL, self._look_soon)

    def open(
        self, store: Store, metadata_id: int, external_id: str, token: Cancellation, *, is_held: bool
    ) -> RunProgress:
        """A run begins."""
        if self._writer is None or not self._capture.is_attached:
            self._begin(store)
        run = RunProgress(store, metadata_id, external_id, token, is_held=is_held)
        self._running[metadata_id] = run
        writer = self._writer
        if writer is not None and writer.is_asleep:
            writer.wake()
        return run

    def end(self, run: RunProgress) -> str | None:
        """A run has ended, and is about to be written down; gives the timings of its junctions."""
        if (run.told is not None and run.told is not run.written[1]) or run.replaced_input:
            self._ended[run.metadata_id] = run
        return run.timings()

    def close(self, run: RunProgress) -> None:
        """Nothing more is expected of a run."""
        self._running.pop(run.metadata_id, None)

    @contextmanager
    def last_words(self, ids: Iterable[int]) -> Generator[LastWords | None]:
        """What is to be written with the ending of these runs; what could not be written waits on."""
        if not (self._ended or self._capture):
            yield None
            return
        ended = [self._ended[one] for one in ids if one in self._ended]
        caught = self._capture.take()
        words = LastWords(caught, ended)
        try:
            yield words
        except BaseException:
            self._capture.give_back(caught)
            raise
        for one in ended:
            self._ended.pop(one.metadata_id, None)
        self._passed_over += words.passed_over
        if words.passed_over and self._writer is not None:
            self._writer.wake()

    def write(self, *, older_than_seconds: float = 0.0) -> None:
        """Write what is new about the runs that go on, and stop those that somebody wants stopped."""
        store = self._store
        if store is None:
            return
        self._write_running(store, older_than_seconds)
        self._write_passed_over(store)

    def _write_running(self, store: Store, older_than_seconds: float) -> None:
        running = list(self._running.values())
        changed = [
            (one, one.state)
            for one in running
            if one.state != one.written and one.seconds >= older_than_seconds
        ]
        asked = [one.metadata_id for one in running if not one.is_held] if self._is_time_to_look() else []
        if not (changed or asked or self._capture):
            return
        with self.last_words(()) as words:
            written, to_stop = store.run(_write, store, [one for one, _ in changed], words, asked)
        for one, state in changed:
            if one.metadata_id in written:
                one.written = state
        for metadata_id, why in to_stop.items():
            if metadata_id in self._running:
                self._running[metadata_id].stop(why)

    def _write_passed_over(self, store: Store) -> None:
        """One at a time: whoever holds a record can be waited for when nothing else is held."""
        while self._passed_over:
            one = self._passed_over[0]
            store.run(progress.write_last, *one)
            self._passed_over.remove(one)

    def shut(self) -> None:
        """Write the rest and stop listening, until another run begins."""
        with self._lock:
            writer, self._writer = self._writer, None
            self._capture.detach()
        if writer is not None:
            writer.stop()
        with suppress(StoreError):
            self.write()
        self._store = None

    def _begin(self, store: Store) -> None:
        with self._lock:
            self._store = store
            if not self._capture.is_attached:
                self._capture.attach()
            if self._writer is None and not self.by_hand:
                self._writer = _Writer(self.write, self._is_idle)
                self._writer.start()

    def _is_ours(self, run: Run) -> bool:
        known = self._running.get(run.metadata_id)
        return known is not None and known.external_id == run.external_id

    def _is_idle(self) -> bool:
        return not (self._running or self._capture or self._passed_over)

    def _is_time_to_look(self) -> bool:
        """Who runs without a worker has nobody else to watch for wishes to stop it."""
        now = time.monotonic()
        if now - self._looked_at < self._live.now.heartbeat_interval.total_seconds() and not self.by_hand:
            return False
        self._looked_at = now
        return True

    def _look_soon(self) -> None:
        """Somebody in this process asked a run to stop: no run begins another junction without looking."""
        self._looked_at = -math.inf
        for run in list(self._running.values()):
            run.look_at = -math.inf
        writer = self._writer
        if writer is not None:
            writer.hurry()


def _write(
    connection: Connection,
    store: Store,
    changed: list[RunProgress],
    words: LastWords | None,
    asked: list[int],
) -> tuple[set[int], dict[int, CancelReason]]:
    now = store.now(connection)
    written = progress.write(connection, [one.note(now) for one in changed])
    if words is not None:
        words.write(connection, now=now)
    return written, progress.asked_to_stop(connection, asked) if asked else {}


class _Writer:
    """The thread that writes. It sleeps while nothing runs, and wakes no more often than needed."""

    def __init__(self, write: Callable[..., None], is_idle: Callable[[], bool]) -> None:
        self._write = write
        self._is_idle = is_idle
        self._woken = Event()
        self._hurried = Event()
        self._is_stopping = False
        self._is_failing = False
        self.is_asleep = False
        self._thread = Thread(target=self._run, name="trax-notebook", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def hurry(self) -> None:
        self._woken.set()
        self._hurried.set()

    def stop(self) -> None:
        self._is_stopping = True
        self.hurry()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._is_stopping:
            self._sleep_while_idle()
            self._hurried.wait(WRITE_SECONDS)
            self._hurried.clear()
            self._turn(0.0 if self._is_stopping else WRITE_SECONDS)

    def _sleep_while_idle(self) -> None:
        self._woken.clear()
        self.is_asleep = True  # before looking, so that a run that begins meanwhile wakes us
        if self._is_idle() and not self._is_stopping:
            self._woken.wait()
        self.is_asleep = False

    def _turn(self, older_than_seconds: float) -> None:
        try:
            self._write(older_than_seconds=older_than_seconds)
            self._is_failing = False
        except StoreError as error:
            if not self._is_failing:
                logger.warning("log lines and progress cannot be written for now: %s", error)
            self._is_failing = True
        except Exception:
            logger.exception("log lines and progress could not be written")
