"""`CeleryWorkers`: run jobs in Celery workers. `celery_task` is the task that claims and runs them there.

Messages for Celery's filesystem broker are written to a staging folder and then moved: its driver creates a
message file and then fills it, and a worker that reads it in between gets an empty message and crashes.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from trax.bounds import PRIORITY_MAX
from trax.errors import DefinitionError, NotFound, TraxError, import_extra
from trax.remote.receiver import ThreadReceiver
from trax.schedule.validate import ID

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from trax.engine.submitter import Submission, SubmissionResult
    from trax.remote.receiver import ReceivingApp


TASK: Final = "trax.take_up"

REGISTERED_TASKS: Final[WeakKeyDictionary[Any, set[str]]] = WeakKeyDictionary()
"""Task names per Celery app: Celery ignores a second task of the same name, and its runs would wait."""

CONNECT_TIMEOUT: Final = timedelta(seconds=4)

TRY_AGAIN_SECONDS: Final = 10

BROKER_PRIORITY_MAX: Final = 9


class CeleryWorkers:
    """Submits runs to Celery workers, through the broker of a Celery app.

    `queue` is the Celery queue; without it Celery's routing applies. `task` is the task name that
    `celery_task` registered in the workers.
    """

    batch_size = 100

    def __init__(
        self,
        celery_app: Any,
        *,
        queue: str | None = None,
        name: str = "celery",
        task: str = TASK,
        connect_timeout: timedelta = CONNECT_TIMEOUT,
    ) -> None:
        _check(celery_app, "CeleryWorkers")
        self.name = name
        self._celery = celery_app
        self._task = task
        self._queue: dict[str, Any] = {} if queue is None else {"queue": queue}
        self._connect_seconds = connect_timeout.total_seconds()

    def submit(self, batch: Sequence[Submission]) -> list[SubmissionResult]:
        """Send a task for each run over one connection; after a failure the rest are not sent."""
        answers: list[SubmissionResult] = []
        with self._connection() as (connection, outbox):
            producer = self._celery.amqp.Producer(connection, auto_declare=False)
            for run in batch:
                try:
                    self._send(run, producer)
                    outbox.deliver()
                except Exception as error:  # noqa: BLE001 - it is the result
                    return [*answers, *[error] * (len(batch) - len(answers))]
                answers.append(None)
        return answers

    def withdraw(self, batch: Sequence[Submission]) -> None:
        """Revoke tasks that have not started; their runs have ended already."""
        with self._connection() as (connection, outbox):
            self._celery.control.revoke([_task_id(run) for run in batch], connection=connection)
            outbox.deliver()

    def _send(self, run: Submission, producer: Any) -> None:
        self._celery.send_task(
            self._task,
            args=(run.metadata_id,),
            task_id=_task_id(run),
            producer=producer,
            priority=broker_priority(run.priority, self._driver),
            serializer="json",
            ignore_result=True,
            retry=False,  # Trax retries a failed hand-over itself
            **self._queue,
        )

    @contextmanager
    def _connection(self) -> Generator[tuple[Any, Outbox]]:
        """A connection with a timeout: Celery itself would retry forever."""
        configured: Mapping[str, Any] = self._celery.conf.broker_transport_options or {}
        with open_outbox(self._driver, {**self._transport_options, **configured}) as box:
            connection = self._celery.connection_for_write(
                connect_timeout=self._connect_seconds, transport_options=box.options
            )
            hosts = len(connection.alt) or 1
            with connection.ensure_connection(max_retries=hosts - 1, interval_start=0, interval_step=0):
                yield connection, box

    @cached_property
    def _driver(self) -> str:
        """The broker type. Read on first use: a Celery app may be configured late."""
        return self._celery.connection_for_write().transport.driver_type

    @property
    def _transport_options(self) -> Mapping[str, Any]:
        """Driver options that make a message safe by the time `submit` returns."""
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


def celery_task(app: ReceivingApp, celery_app: Any, *, name: str = TASK) -> Any:
    """Register the Celery task that claims and runs jobs of this app, in a module that Celery workers load.

    Nothing is opened until a task arrives, in the process that executes it, so Celery may fork after this.
    Each such process is a worker of the app. A task lasts as long as its run and is acknowledged after it;
    one that is delivered again finds its run claimed, and does nothing.
    """
    _check(celery_app, "celery_task()")
    if name in (taken := REGISTERED_TASKS.setdefault(celery_app, set())):
        raise DefinitionError(
            f"task {name!r} is already registered in this Celery app: "
            "give each Trax app its own task, with celery_task(…, name=…) and CeleryWorkers(…, task=…)"
        )
    taken.add(name)
    host = _CeleryWorkerHooks(app)
    host.listen()

    def take_up(task: Any, metadata_id: Any) -> bool:
        ID("metadata_id", metadata_id)  # another process would not succeed either
        try:
            return host.resident.execute(metadata_id)
        except NotFound:
            raise
        except TraxError as error:  # train unknown, or no database: another process may succeed
            raise task.retry(exc=error) from error

    return celery_app.task(
        take_up,
        name=name,
        shared=False,  # else Celery registers it in every other app of the process
        bind=True,
        acks_late=True,
        reject_on_worker_lost=True,
        ignore_result=True,
        max_retries=None,  # while the run is pending
        default_retry_delay=TRY_AGAIN_SECONDS,
    )


def broker_priority(priority: int, driver: str) -> int:
    """Scale a priority of 0 to 31 to the broker's 0 to 9; 9 is highest, 0 for Redis."""
    scaled = round(priority * BROKER_PRIORITY_MAX / PRIORITY_MAX)
    return BROKER_PRIORITY_MAX - scaled if driver == "redis" else scaled


class _CeleryWorkerHooks:
    """Signals of a Celery worker: how many tasks a process executes at once, and when it ends."""

    def __init__(self, app: ReceivingApp) -> None:
        self.resident = ThreadReceiver(app, self._slots)
        self._worker: Any = None
        self._pid = 0

    def listen(self) -> None:
        signals: Any = import_extra("celery.signals", extra="celery", feature="celery_task()")
        signals.worker_init.connect(self._begin, weak=False)
        for ending in (signals.worker_process_shutdown, signals.worker_shutdown):
            ending.connect(self._end, weak=False)

    def _begin(self, sender: Any, **_: Any) -> None:
        self._worker, self._pid = sender, os.getpid()

    def _end(self, **_: Any) -> None:
        self.resident.close()

    def _slots(self) -> int:
        """One slot in a forked process; all of the worker's in its own process."""
        return self._worker.concurrency if self._pid == os.getpid() else 1


def _task_id(run: Submission) -> str:
    return f"{run.external_id}-{run.metadata_id}"


def _check(celery_app: Any, used_by: str) -> None:
    celery = import_extra("celery", extra="celery", feature=used_by)
    if not isinstance(celery_app, celery.Celery):  # the value is not shown: a URL may hold a password
        raise DefinitionError(f"{used_by} needs a Celery app (got {type(celery_app).__name__})")


DRIVER: Final = "filesystem"

OUT: Final = "data_folder_out"

DEFAULT_OUT: Final = "data_out"


class Outbox:
    """The staging folder and the target folder of messages; other brokers need none."""

    def __init__(self, options: Mapping[str, Any], staging_folder: Path | None = None) -> None:
        self._folder = Path(options.get(OUT, DEFAULT_OUT))
        self._staging_folder = staging_folder
        self.options = dict(options) if staging_folder is None else {**options, OUT: str(staging_folder)}

    def deliver(self) -> None:
        """Move written messages to the target folder. Not called if writing failed."""
        for message in sorted(self._staging_folder.iterdir()) if self._staging_folder else ():
            message.replace(self._folder / message.name)


@contextmanager
def open_outbox(driver: str, options: Mapping[str, Any]) -> Generator[Outbox]:
    """An outbox: connection options for writing, and `deliver` to publish the messages."""
    if driver != DRIVER:
        yield Outbox(options)
        return
    folder = options.get(OUT, DEFAULT_OUT)
    with TemporaryDirectory(
        prefix=".trax-", dir=folder
    ) as staging_folder:  # inside, so that a move is a rename
        yield Outbox(options, Path(staging_folder))
