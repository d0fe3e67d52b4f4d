"""Celery's workers execute: a Celery task carries the id of a run, and takes it up where it arrives."""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from trax.bounds import PRIORITY_MAX
from trax.errors import DefinitionError, NotFound, TraxError
from trax.host.extras import needed
from trax.submitters.celery_folder import Outbox, outbox
from trax.submitters.resident import Resident

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from trax.dispatch.submit import Answer, Submission
    from trax.host.app import Trax

TASK: Final = "trax.take_up"
TAKEN: Final[WeakKeyDictionary[Any, set[str]]] = WeakKeyDictionary()
"""The tasks each Celery app was given: a second one of a name it would leave out, and its runs would wait."""
CONNECT: Final = timedelta(seconds=4)
TRY_AGAIN_SECONDS: Final = 10
BROKER_PRIORITY_MAX: Final = 9


class CeleryWorkers:
    """Hands runs to Celery's workers, through the broker of a Celery app.

    `queue` is where the tasks go; without it Celery's own routing decides. `task` is the name that
    `celery_task` has registered at the other end.
    """

    batch_size = 100

    def __init__(
        self,
        celery_app: Any,
        *,
        queue: str | None = None,
        name: str = "celery",
        task: str = TASK,
        connect_timeout: timedelta = CONNECT,
    ) -> None:
        _check(celery_app, "CeleryWorkers")
        self.name = name
        self._celery = celery_app
        self._task = task
        self._queue: dict[str, Any] = {} if queue is None else {"queue": queue}
        self._connect_seconds = connect_timeout.total_seconds()

    def submit(self, batch: Sequence[Submission]) -> list[Answer]:
        """Send a task for each run, all over one connection; what follows a failure is not tried."""
        answers: list[Answer] = []
        with self._connected() as (connection, written):
            producer = self._celery.amqp.Producer(connection, auto_declare=False)
            for run in batch:
                try:
                    self._send(run, producer)
                    written.deliver()
                except Exception as error:  # noqa: BLE001 - it is the answer
                    return [*answers, *[error] * (len(batch) - len(answers))]
                answers.append(None)
        return answers

    def withdraw(self, batch: Sequence[Submission]) -> None:
        """Have Celery's workers throw away tasks that have not begun; their records are over already."""
        with self._connected() as (connection, written):
            self._celery.control.revoke([_task_id(run) for run in batch], connection=connection)
            written.deliver()

    def _send(self, run: Submission, producer: Any) -> None:
        self._celery.send_task(
            self._task,
            args=(run.metadata_id,),
            task_id=_task_id(run),
            producer=producer,
            priority=broker_priority(run.priority, self._driver),
            serializer="json",
            ignore_result=True,
            retry=False,  # a failed hand-off is tried again anyway, by whoever is alive then
            **self._queue,
        )

    @contextmanager
    def _connected(self) -> Generator[tuple[Any, Outbox]]:
        """A connection that either stands in good time or not at all: Celery itself tries for ever."""
        said: Mapping[str, Any] = self._celery.conf.broker_transport_options or {}
        with outbox(self._driver, {**self._options, **said}) as written:
            connection = self._celery.connection_for_write(
                connect_timeout=self._connect_seconds, transport_options=written.options
            )
            hosts = len(connection.alt) or 1
            with connection.ensure_connection(max_retries=hosts - 1, interval_start=0, interval_step=0):
                yield connection, written

    @cached_property
    def _driver(self) -> str:
        """Which kind of broker it is. Not asked before it is needed: a Celery app may be configured late."""
        return self._celery.connection_for_write().transport.driver_type

    @property
    def _options(self) -> Mapping[str, Any]:
        """How a driver is told that a message is to be safe when `submit` returns."""
        match self._driver:
            case "amqp":
                return {"confirm_publish": True}
            case "redis":
                return {
                    "socket_connect_timeout": self._connect_seconds,
                    "socket_timeout": self._connect_seconds,
                }
            case _:
                return {}


def celery_task(app: Trax, celery_app: Any, *, name: str = TASK) -> Any:
    """Register the Celery task that takes up runs of this app, in the modules that Celery's workers load.

    Nothing is opened until a task arrives, and then in the process that executes it: so Celery may fork after
    this. Each such process is a worker of the app. A task lasts as long as its run does, and is acknowledged
    after it; one that is delivered again finds the record taken, and does nothing.
    """
    _check(celery_app, "celery_task()")
    if name in (taken := TAKEN.setdefault(celery_app, set())):
        raise DefinitionError(
            f"the Celery app has a task {name!r} already (got it twice): "
            "give each app a task of its own, with celery_task(…, name=…) and CeleryWorkers(…, task=…)"
        )
    taken.add(name)
    host = _Host(app)
    host.listen()

    def take_up(task: Any, metadata_id: int) -> bool:
        try:
            return host.resident.execute(metadata_id)
        except NotFound:
            raise
        except TraxError as unfit:  # no code for it, or no database: another process may do better
            raise task.retry(exc=unfit) from unfit

    return celery_app.task(
        take_up,
        name=name,
        shared=False,  # or Celery gives it to every other app of the process, which has runs of its own
        bind=True,
        acks_late=True,
        reject_on_worker_lost=True,
        ignore_result=True,
        max_retries=None,  # as long as the record waits
        default_retry_delay=TRY_AGAIN_SECONDS,
    )


def broker_priority(priority: int, driver: str) -> int:
    """Our 0 to 31 in a broker's 0 to 9; the highest is 9, in Redis 0."""
    scaled = round(priority * BROKER_PRIORITY_MAX / PRIORITY_MAX)
    return BROKER_PRIORITY_MAX - scaled if driver == "redis" else scaled


class _Host:
    """A Celery worker, as far as it tells us: how many tasks a process executes at once, and when it ends."""

    def __init__(self, app: Trax) -> None:
        self.resident = Resident(app, self._slots)
        self._worker: Any = None
        self._pid = 0

    def listen(self) -> None:
        signals: Any = needed("celery.signals", extra="celery", by="celery_task()")
        signals.worker_init.connect(self._begin, weak=False)
        for ending in (signals.worker_process_shutdown, signals.worker_shutdown):
            ending.connect(self._end, weak=False)

    def _begin(self, sender: Any, **_: Any) -> None:
        self._worker, self._pid = sender, os.getpid()

    def _end(self, **_: Any) -> None:
        self.resident.close()

    def _slots(self) -> int:
        """One in a process that the worker has forked; else all tasks are in its own."""
        return self._worker.concurrency if self._pid == os.getpid() else 1


def _task_id(run: Submission) -> str:
    return f"{run.external_id}-{run.metadata_id}"


def _check(celery_app: Any, who: str) -> None:
    celery = needed("celery", extra="celery", by=who)
    if not isinstance(celery_app, celery.Celery):  # an address is not shown: it may hold a password
        raise DefinitionError(f"{who} needs a Celery app (got {type(celery_app).__name__})")
