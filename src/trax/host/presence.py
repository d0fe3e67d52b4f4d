"""The rows that a process keeps alive in the table of workers, and the thread that beats for them.

The beat has a thread and a connection of its own. Neither a train that blocks the event loop nor callers that
take every store thread can silence a process that lives.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import time
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from trax.events import Topic
from trax.host.identity import own_version
from trax.records.worker import Watch, WorkerKind
from trax.store import workers
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from trax.host.identity import Identity
    from trax.host.live_settings import LiveSettings
    from trax.host.opening import OpenStore
    from trax.store import Connection, Store

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 1.0
"""How soon a beat that failed is tried again, if the next one is not due sooner."""


class Presence:
    """The rows that this process beats for. Any thread may use it."""

    def __init__(self, opening: OpenStore, live: LiveSettings, identity: Identity, app: str) -> None:
        self._opening = opening
        self._app = app
        self.declares: str | None = None
        """The digest of the manifests that this process declares, once it schedules."""
        self._live = live
        self._identity = identity
        self.by_hand = False
        """Set by tests that own the time: then nothing beats but `beat`."""
        self.watch: Watch | None = None
        """Since when this process has beaten without a gap; None where nothing beats by itself."""
        self._lock = Lock()
        self._registering = Lock()
        self._ids: set[int] = set()
        self._beaten_at: dict[int, float] = {}
        self.caller_id: int | None = None
        """The row that the runs of `app.run` belong to, once there is one."""
        self._failures = 0
        self._stopped = Event()
        self._thread: Thread | None = None

    def join(self, worker_id: int) -> None:
        """Beat for this row from now on."""
        with self._lock:
            self._ids.add(worker_id)
            self._beaten_at[worker_id] = time.monotonic()  # its row is new
            if self._thread is None and not self.by_hand:
                self.watch, self._stopped = Watch.never(), Event()
                self._thread = Thread(
                    target=self._run, args=(self._stopped,), name="trax heartbeat", daemon=True
                )
                self._thread.start()
                atexit.register(self.close)

    def leave(self, worker_id: int) -> None:
        """Beat for this row no longer."""
        with self._lock:
            self._ids.discard(worker_id)
            self._beaten_at.pop(worker_id, None)

    def move(self, old_id: int, new_id: int) -> None:
        """Beat for another row instead, if this one was beaten for."""
        if old_id in self._ids:
            self.leave(old_id)
            self.join(new_id)

    def beaten_at(self, worker_id: int) -> float | None:
        """When this row was last beaten for, by the monotonic clock; None when nobody does."""
        return self._beaten_at.get(worker_id)

    def caller(self, store: Store) -> int:
        """The row that the runs of `app.run` in this process belong to; made when there is none."""
        with self._registering:
            if self.caller_id is None:
                caller_id = store.run(self.register, store, {"kind": WorkerKind.CALLER})
                self.caller_id = caller_id
                self.join(caller_id)
            return self.caller_id

    def register(self, connection: Connection, store: Store, own: Mapping[str, Any]) -> int:
        """Make a row: `own` is what it says of itself, the rest is found out here. Returns its id."""
        identity, settings = self._identity, self._live.now
        columns = {
            "host": identity.host,
            "host_environment": identity.environment,
            "host_instance_id": identity.instance_id,
            "host_labels": json.dumps(identity.labels) if identity.labels else None,
            "pid": os.getpid(),
            "version": own_version(),
            "app_version": settings.app_version or "",
            "app": self._app,
            "declares": self.declares if own.get("dispatches") else None,
            "concurrency": 0,
            "trains": "[]",
            **own,
        }
        if columns["kind"] in (WorkerKind.WORKER, WorkerKind.SCHEDULER):
            columns["settings"] = self._live.published()
            announce(connection, Topic.WORK_QUEUE)  # the gate may have kept out what this one takes
        return workers.register(connection, columns, now=store.now(connection))

    def beat(self, connection: Connection, now: datetime) -> None:
        """Say that all of them live, and forget those whose row is gone: they were declared lost."""
        with self._lock:
            ids = set(self._ids)
        beating = workers.beat_all(connection, ids, now=now) if ids else set[int]()
        at = time.monotonic()
        with self._lock:
            for one in ids & self._ids:
                if one in beating:
                    self._beaten_at[one] = at
                elif one == self.caller_id:
                    logger.warning("worker %s missed its heartbeat; its runs of app.run were ended", one)
                    self.caller_id = None
                    self._ids.discard(one)

    def close(self) -> None:
        """Stop beating, and take the row of `app.run` away."""
        atexit.unregister(self.close)
        with self._lock:
            thread, self._thread = self._thread, None
            self._ids.clear()
        self._stopped.set()
        if thread is not None:
            thread.join(CLOSE_SECONDS)
        self.caller_id, self.watch = None, None

    def _run(self, stopped: Event) -> None:
        with self._opening.beside() as store:
            while not stopped.wait(self._turn(store)):
                pass
            self._remove_caller(store)

    def _turn(self, store: Store) -> float:
        """Beat once; returns how many seconds may pass until the next time."""
        settings = self._live.now
        interval = settings.heartbeat_interval.total_seconds()
        try:
            now = store.run(self._beat_now, store)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next beat may go well
            self._failures += 1
            level = logging.WARNING if self._failures == 1 else logging.DEBUG  # said once an outage
            logger.log(level, "the heartbeat failed, trying again: %s", error)
            return min(interval, RETRY_SECONDS)
        if self._failures:
            logger.info("the heartbeat goes on after %s that failed", self._failures)
            self._failures = 0
        longest = max(settings.worker_lost_after / 2, settings.heartbeat_interval * 1.5)
        self.watch = (self.watch or Watch.never()).after_beat(now, longest)
        return interval

    def _beat_now(self, connection: Connection, store: Store) -> datetime:
        now = store.now(connection)
        self.beat(connection, now)
        return now

    def _remove_caller(self, store: Store) -> None:
        if self.caller_id is not None:
            try:
                store.run(workers.remove, self.caller_id)
            except Exception as error:  # noqa: BLE001 - the row is found silent, and forgotten
                logger.debug("worker %s could not remove its row: %s", self.caller_id, error)
