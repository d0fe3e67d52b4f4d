"""Renew the worker rows of this process from a thread; its identity; see when its event loop is blocked."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Self

from trax.events import Topic
from trax.forks import bind_to_process, fork_safe
from trax.records.worker import HeartbeatStreak, WorkerKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from trax.engine.live_settings import LiveSettings
    from trax.engine.open_store import LazyStore
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Registry
    from trax.worker.active_run import ActiveRun
    from trax.worker.app_context import AppContext

logger = logging.getLogger(__name__)
ENVIRONMENTS: Final = (
    ("AWS_LAMBDA_FUNCTION_NAME", "lambda", "AWS_LAMBDA_LOG_STREAM_NAME"),
    ("ECS_CONTAINER_METADATA_URI_V4", "ecs", "HOSTNAME"),
    ("ECS_CONTAINER_METADATA_URI", "ecs", "HOSTNAME"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes", "HOSTNAME"),
    ("WEBSITE_SITE_NAME", "azure-app-service", "WEBSITE_INSTANCE_ID"),
)
"""The variable that reveals an environment, its name, the variable with the instance id. First match wins."""


CLOSE_SECONDS: Final = 2.0

FIRST_SECONDS: Final = 1.0
"""When the first heartbeat is sent, if the interval is not shorter, so that it does not delay the start."""

RETRY_SECONDS: Final = 1.0
"""Pause after a failed heartbeat, if the interval is not shorter."""


class Heartbeat:
    """The worker rows that this process renews. Thread-safe."""

    def __init__(
        self, opening: LazyStore, live: LiveSettings, identity: Identity, app: str, trains: Registry
    ) -> None:
        self._opening = opening
        self._app = app
        self.declares: str | None = None
        """Digest of the manifests that this process declares; set when it schedules."""
        self._live = live
        self._trains = trains
        self._identity = identity
        self.is_manual = False
        """Set by tests that control the clock: no thread is started, they call `record_heartbeats`."""
        self.watch: HeartbeatStreak | None = None
        """Since when the heartbeat has had no gap; None without a heartbeat thread."""
        self.find_failing_loops: Callable[[], Mapping[str, str]] = dict[str, str]
        """Returns the loops of this process whose turns fail, with their errors; its rows publish them."""
        self._lock = fork_safe(Lock())
        self._registering = fork_safe(Lock())
        self._ids: set[int] = set()
        self._last_heartbeat_at: dict[int, float] = {}
        self.caller_id: int | None = None
        """Id of the row that owns the runs of `app.run`, if it exists."""
        self._failures = 0
        self._stopped = Event()
        self._thread: Thread | None = None
        bind_to_process(self)

    def reset_in_child(self) -> None:
        """The parent renews its rows; this process gets rows of its own."""
        atexit.unregister(self.close)
        self._ids, self._last_heartbeat_at = set(), {}
        self.caller_id = self.watch = self.declares = self._thread = None
        self._identity = Identity.detect(self._live.current)

    @property
    def streak(self) -> HeartbeatStreak | None:
        """The heartbeats of this process without a gap; None: others may be declared lost at once."""
        return self.watch if self.is_manual else self.watch or HeartbeatStreak.empty()

    def add(self, worker_id: int) -> None:
        """Start to renew this row."""
        with self._lock:
            self._ids.add(worker_id)
            self._last_heartbeat_at[worker_id] = time.monotonic()  # its row is new
            if self._thread is None and not self.is_manual:
                self.watch, self._stopped = HeartbeatStreak.empty(), Event()
                self._thread = Thread(
                    target=self._run, args=(self._stopped,), name="trax heartbeat", daemon=True
                )
                self._thread.start()
                atexit.register(self.close)

    def remove(self, worker_id: int) -> None:
        """Stop renewing this row."""
        with self._lock:
            self._ids.discard(worker_id)
            self._last_heartbeat_at.pop(worker_id, None)

    def replace(self, old_id: int, new_id: int) -> None:
        """Renew the new row instead of the old one, if the old one was renewed."""
        if old_id in self._ids:
            self.remove(old_id)
            self.add(new_id)

    def last_heartbeat_at(self, worker_id: int) -> float | None:
        """Monotonic time of this row's last heartbeat; None if it is not renewed here."""
        return self._last_heartbeat_at.get(worker_id)

    def ensure_caller_row(self, store: Store) -> int:
        """Id of the row that owns the runs of `app.run` in this process; inserted if it is missing."""
        with self._registering:
            if self.caller_id is None:
                caller_id = store.run(self.register, store, {"kind": WorkerKind.CALLER})
                self.caller_id = caller_id
                self.add(caller_id)
            return self.caller_id

    def register(self, connection: Connection, store: Store, row: Mapping[str, Any]) -> int:
        """Insert a worker row with the given columns and those of this process; returns its id."""
        from trax.engine.live_settings import record_declared_limit
        from trax.store import dialect, workers
        from trax.store.announce import announce

        identity, settings = self._identity, self._live.current
        columns = {
            "host": identity.host,
            "host_environment": identity.environment,
            "host_instance_id": identity.instance_id,
            "host_labels": json.dumps(identity.labels) if identity.labels else None,
            "pid": os.getpid(),
            "version": own_version(),
            "app_version": settings.app_version or "",
            "app": self._app,
            "declares": self.declares if row.get("dispatches") else None,
            "concurrency": 0,
            "trains": "[]",
            **row,
        }
        if columns["kind"] in (WorkerKind.WORKER, WorkerKind.SCHEDULER):
            columns["settings"] = self._live.publish(self.exempt_trains())
            announce(connection, Topic.WORK_QUEUE)  # the dispatcher may now admit what this worker accepts
        if not row.get("dispatches"):
            return workers.register(connection, columns, now=store.now(connection))
        dialect.take_settings_lock(connection)
        now = store.now(connection)
        worker_id = workers.register(connection, columns, now=now)
        record_declared_limit(connection, now=now)
        return worker_id

    def exempt_trains(self) -> list[str]:
        """The names and aliases of the trains that are exempt from the limits."""
        exempt = (each for each in self._trains if each.options.exclude_from_max_active_jobs)
        return [name for train in exempt for name in (train.name, *train.options.aliases)]

    def record_heartbeats(self, connection: Connection, now: datetime) -> None:
        """Renew all rows. Drop the row of `app.run` if it is gone: it was declared lost."""
        from trax.store import workers

        with self._lock:
            ids = set(self._ids)
        failing = dict(self.find_failing_loops())
        text = json.dumps(failing) if failing else None
        renewed = workers.record_heartbeats(connection, ids, text, now=now) if ids else set[int]()
        at = time.monotonic()
        with self._lock:
            for worker_id in ids & self._ids:
                if worker_id in renewed:
                    self._last_heartbeat_at[worker_id] = at
                elif worker_id == self.caller_id:
                    text = "worker %s missed its heartbeat; its runs of app.run were ended"
                    logger.warning(text, worker_id)
                    self.caller_id = None
                    self._ids.discard(worker_id)

    def close(self) -> None:
        """Stop the heartbeat and remove the row of `app.run`."""
        atexit.unregister(self.close)
        with self._lock:
            thread, self._thread = self._thread, None
            self._ids.clear()
        self._stopped.set()
        if thread is not None:
            thread.join(CLOSE_SECONDS)
        self.caller_id, self.watch = None, None

    def _run(self, stopped: Event) -> None:
        """Send heartbeats until stopped. The first row is new, so the first heartbeat need not be at once."""
        with self._opening.separate_store() as store:
            seconds = min(FIRST_SECONDS, self._live.current.heartbeat_interval.total_seconds())
            while not stopped.wait(seconds):
                seconds = self._send(store)
            self._remove_caller(store)

    def _send(self, store: Store) -> float:
        """Send one heartbeat; returns the seconds until the next."""
        settings = self._live.current
        interval = settings.heartbeat_interval.total_seconds()
        try:
            now = store.run(self._record_now, store)
        except Exception as error:  # noqa: BLE001 - the next heartbeat may succeed
            self._failures += 1
            level = logging.WARNING if self._failures == 1 else logging.DEBUG  # one warning per outage
            logger.log(level, "heartbeat failed, trying again: %s", error)
            return min(interval, RETRY_SECONDS)
        if self._failures:
            logger.info("heartbeat works again after %s failures", self._failures)
            self._failures = 0
        self.note_heartbeat(now)
        return interval

    def note_heartbeat(self, now: datetime) -> None:
        """Note that a heartbeat was sent."""
        settings = self._live.current
        longest = max(settings.worker_lost_after / 2, settings.heartbeat_interval * 1.5)
        self.watch = (self.watch or HeartbeatStreak.empty()).after_heartbeat(now, longest)

    def _record_now(self, connection: Connection, store: Store) -> datetime:
        now = store.now(connection)
        self.record_heartbeats(connection, now)
        return now

    def _remove_caller(self, store: Store) -> None:
        if self.caller_id is not None:
            from trax.store import workers

            try:
                store.run(workers.remove, self.caller_id)
            except Exception as error:  # noqa: BLE001 - the row expires without heartbeats
                logger.debug("worker %s could not remove its row: %s", self.caller_id, error)


class SchedulerRow:
    """The worker row of a process that schedules and runs no jobs.

    Without it others do not see what this process hands over, and it must not declare workers lost.
    """

    def __init__(self, context: AppContext, store: Store) -> None:
        self.id = 0
        self._context = context
        self._store = store

    async def register(self) -> Self:
        row = {
            "kind": WorkerKind.SCHEDULER,
            "dispatches": True,
            "routes": self._context.routes_json,
            "plain_fields": self._context.plain_fields_json,
        }
        heartbeat, old_id = self._context.heartbeat, self.id
        self.id = await self._store.call(heartbeat.register, self._store, row)
        heartbeat.replace(old_id, self.id)
        return self

    async def send_heartbeat(self) -> None:
        """Send a heartbeat; register again if the row was deleted as lost."""
        if not await self._store.call(self._record_heartbeat):
            text = "worker %s, a scheduler, missed its heartbeat; registering again"
            logger.warning(text, self.id, extra={"worker": self.id})
            await self.register()

    def start_heartbeat(self) -> None:
        """Let the heartbeat thread renew this row, even if its event loop is blocked."""
        self._context.heartbeat.add(self.id)

    async def unregister(self) -> None:
        """Remove the row."""
        from trax.store import workers

        self._context.heartbeat.remove(self.id)
        await self._store.call(workers.remove, self.id)

    def _record_heartbeat(self, connection: Connection) -> bool:
        from trax.store import workers

        self._context.live.refresh(connection)
        return workers.record_heartbeat(connection, self.id, concurrency=0, now=self._store.now(connection))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Host, environment and instance of this process; detected once, when an app is created."""

    host: str
    environment: str
    instance_id: str
    labels: Mapping[str, str]

    @classmethod
    def detect(cls, settings: Settings, environment: Mapping[str, str] | None = None) -> Self:
        """Take the settings, and fill what they omit from the environment variables."""
        environment = os.environ if environment is None else environment
        host = _host_name()
        place, instance_id = _detect_environment(environment)
        return cls(
            host=host,
            environment=settings.host_environment or place,
            instance_id=settings.host_instance_id or instance_id or f"{host}-{os.getpid()}",
            labels=settings.host_labels,
        )


def _detect_environment(environment: Mapping[str, str]) -> tuple[str, str | None]:
    for variable, name, instance in ENVIRONMENTS:
        if environment.get(variable):
            return name, environment.get(instance)
    return "server", None


def _host_name() -> str:
    try:
        return socket.gethostname() or "unknown"
    except OSError:
        return "unknown"


@cache
def own_version() -> str:
    """The version of Trax; empty when it is not installed as a package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trax-scheduler")
    except PackageNotFoundError:
        return ""


BLOCKED_SECONDS = 1.0
CHECKS_PER_WINDOW = 4
"""How many checks of the loop per `BLOCKED_SECONDS`."""

SHOWN_RUNS = 10
SHOWN_FRAMES = 12


class LoopWatch:
    """A thread that checks whether the event loop responds, while there are active runs.

    While one run blocks the loop, all other runs wait, and so do results and timeouts. The log says which.
    """

    def __init__(
        self, runs: Callable[[], Sequence[ActiveRun[Any]]], *, blocked_seconds: float = BLOCKED_SECONDS
    ) -> None:
        self._runs = runs
        self._blocked_seconds = blocked_seconds
        self._is_active = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_awake(self) -> bool:
        return self._is_active.is_set()

    def wake(self) -> None:
        """Watch the event loop of the caller until nothing runs. Cheap if the watch is awake."""
        if self._is_active.is_set():
            return
        self._is_active.set()
        if self._thread is None:
            self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
            self._thread = threading.Thread(target=self._watch, name="trax loop watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._is_active.set()

    def _watch(self) -> None:
        while self._is_active.wait() and not self._stopped.is_set():
            self._check_loop()
            if self._stopped.wait(self._blocked_seconds / CHECKS_PER_WINDOW):
                return
            if not self._runs():
                self._is_active.clear()
                if self._runs():  # a run started in between and found the watch awake
                    self._is_active.set()

    def _check_loop(self) -> None:
        began, response = time.monotonic(), threading.Event()
        if self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(response.set)
        except RuntimeError:  # closed just now
            return
        if response.wait(self._blocked_seconds) or self._stopped.is_set():
            return
        runs = self._runs()
        if not runs:
            return  # no run is affected
        blocker = self._describe_blocker(runs)
        logger.warning(
            "event loop: it has been blocked for %.2g s: %s. Everything else waits. Put blocking code in "
            "synchronous junctions, which run in a thread.\n%s",
            time.monotonic() - began,
            blocker,
            self._stack(),
            extra={"duration_seconds": time.monotonic() - began},
        )
        while not response.wait(self._blocked_seconds):
            if self._loop.is_closed():
                return
        seconds = time.monotonic() - began
        extra = {"duration_seconds": seconds}
        logger.warning("event loop: it continues after %.2g s: %s", seconds, blocker, extra=extra)

    def _describe_blocker(self, runs: Sequence[ActiveRun[Any]]) -> str:
        task = asyncio.current_task(self._loop)
        for run in runs:
            if task is not None and run.task is task:
                return f"{run} blocks it"
        shown = ", ".join(str(run) for run in runs[:SHOWN_RUNS])
        what = f"task {task.get_name()!r}" if task else "a callback"
        return f"{what} blocks it; active: {shown}"

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return "".join(traceback.format_stack(frame)[-SHOWN_FRAMES:]) if frame else ""
