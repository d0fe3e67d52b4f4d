"""`Trax`, the app object: declare trains and schedules, enqueue, run, start and stop."""

from __future__ import annotations

import asyncio
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, Self, TypedDict, TypeVar, overload

from trax.engine.live_settings import LiveSettings
from trax.errors import TraxError, explain_call, import_extra
from trax.forks import bind_to_process, keep_inherited
from trax.settings import Settings
from trax.store.url import choose_url
from trax.train import train as define_train
from trax.train import train_of
from trax.train.options import check_name
from trax.worker.app_context import AppContext
from trax.worker.loop import StopSignals, run_in_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime, timedelta
    from typing import Unpack

    from trax.app.audit import Audit
    from trax.app.dead_letters import DeadLetters
    from trax.app.executions import AppLogs, Executions
    from trax.app.groups import Groups
    from trax.app.manifests import Manifests
    from trax.app.queue import Enqueuer
    from trax.app.sessions import Sessions
    from trax.app.settings import AppSettings
    from trax.app.stats import Stats
    from trax.app.sync import Sync
    from trax.app.work_queue import WorkQueue
    from trax.app.workers import Workers
    from trax.engine.enqueue import ManyKeywords, QueueKeywords
    from trax.engine.submitter import Submitter
    from trax.records.status import Reason
    from trax.records.verification import Verification
    from trax.remote.http.endpoint import EndpointKeywords, HttpEndpoint
    from trax.remote.receiver import Receiver
    from trax.server.roles import ProcessDuties, ServerObserver
    from trax.settings import SettingKeywords
    from trax.train import Segment, Train, TrainKeywords
    from trax.train.services import FactoryResult, ManagedResult
    from trax.web.access import Access
    from trax.web.limits import WebLimits
    from trax.worker.app_context import WorkFilterKeywords
    from trax.worker.entry import QueuedEntry
    from trax.worker.loop import Loop
    from trax.worker.recorded_run import Remote, RemoteExecutor

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")


class TrainDecorator(Protocol):
    """The decorator that `@app.train(…)` with options returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[In, ...], Awaitable[Out]], /) -> Train[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[], Awaitable[Out]], /) -> Train[None, Out]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[In, ...], Out], /) -> Train[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[], Out], /) -> Train[None, Out]: ...


class AsgiApplication(Protocol):
    """An ASGI application: serve it with any ASGI server, or mount it in another application."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        /,
    ) -> None: ...


class WebKeywords(TypedDict, total=False):
    """Options of `app.web()`; `trax.web.create` has their meaning."""

    access: Access | None
    title: str
    environment: str | None
    mask: Iterable[str] | None
    limits: WebLimits | None


class Trax:
    """An app: its trains, their services, and its database.

    Declaring trains and schedules does not open the database or load its libraries. The first use does, and
    migrates the tables.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "default",
        submitter: Submitter | None = None,
        **settings: Unpack[SettingKeywords],
    ) -> None:
        """`name` distinguishes apps that share a database: each retires only manifests it declared itself."""
        check_name(name, "an app's name")
        self.context = AppContext.build(choose_url(url), LiveSettings.load(settings), name)
        """What the resources and processes of this app share."""
        self.trains = self.context.trains
        self.submitters = self.context.submitters
        if submitter is not None:
            self.submitters.default = submitter
        self.schedule = self.context.declarations.schedule
        self.schedule_many = self.context.declarations.schedule_many
        self.schedule_once = self.context.declarations.schedule_once
        self.group = self.context.declarations.group
        self.calendar = self.context.declarations.calendar
        self.on_queue = self.context.hooks.on_queue
        self.on_started = self.context.hooks.on_started
        self.on_completed = self.context.hooks.on_completed
        self.on_failed = self.context.hooks.on_failed
        self.on_cancelled = self.context.hooks.on_cancelled
        self.on_state_changed = self.context.hooks.on_state_changed
        self.limit_runs = self.context.limits.set
        self._running: ProcessDuties | None = None
        bind_to_process(self)

    def reset_in_child(self) -> None:
        """A forked process runs no role: its parent does. It may start one of its own."""
        keep_inherited(self._running)
        self._running = None
        self.context.telemetry.reset()

    if not TYPE_CHECKING:  # a type checker reports it by itself

        def __setattr__(self, name: str, value: Any) -> None:
            if name in Settings.model_fields:
                from trax.app.settings import assignment_error

                raise assignment_error(name)
            object.__setattr__(self, name, value)

    @overload
    def train(
        self, name: str, route: Segment[In, Out], /, **options: Unpack[TrainKeywords]
    ) -> Train[In, Out]: ...
    @overload
    def train(self, /, **options: Unpack[TrainKeywords]) -> TrainDecorator: ...
    @overload
    def train(self, function: Callable[Concatenate[In, ...], Awaitable[Out]], /) -> Train[In, Out]: ...
    @overload
    def train(self, function: Callable[[], Awaitable[Out]], /) -> Train[None, Out]: ...
    @overload
    def train(self, function: Callable[Concatenate[In, ...], Out], /) -> Train[In, Out]: ...
    @overload
    def train(self, function: Callable[[], Out], /) -> Train[None, Out]: ...
    def train(self, what: Any = None, route: Any = None, /, **options: Any) -> Any:
        """Define a train: a name and a route, or one function (`@app.train`, `@app.train(cpu=True)`)."""
        if what is None:
            return partial(self._define, **options)
        return self._define(what, route, **options)

    def _define(self, name_or_function: Any, route: Any = None, **options: Any) -> Train[Any, Any]:
        options["services"] = self.context.services
        defined = (
            train_of(name_or_function, **options)
            if route is None
            else define_train(name_or_function, route, **options)
        )
        self.context.parameters.input_codec(defined)
        self.trains.add(defined)
        if defined.options.group is not None and not self.is_running:
            self.group(defined.options.group)
        return defined

    def provide(
        self,
        kind: type[T],
        factory: T | Callable[..., FactoryResult[T] | ManagedResult[T]],
        *,
        close: bool = True,
    ) -> None:
        """Provide the service `kind` to junctions: built by `factory`, at most once a run."""
        self.context.services.provide(kind, factory, close=close)

    def route(self, *trains: Train[Any, Any], to: Submitter | str) -> None:
        """Execute these trains through a submitter (or its name); "local" is Trax's own workers."""
        for train in trains:
            self.context.parameters.codec_of_registered(train)
            self.submitters.route(train.name, to)

    def receiver(
        self, *, concurrency: int | None = None, executor: RemoteExecutor | None = None
    ) -> AbstractAsyncContextManager[Receiver]:
        """Execute runs that a submitter handed to this process: `await receiver.claim_by_id(metadata_id)`."""
        from trax.remote.receiver import run_receiver

        return run_receiver(self.context, concurrency=concurrency, executor=executor)

    def http_endpoint(
        self, secrets: str | Mapping[str, str], **options: Unpack[EndpointKeywords]
    ) -> HttpEndpoint:
        """An ASGI application that executes what `HttpWorkers` hands over. Serve it or mount it."""
        from trax.remote.http.endpoint import HttpEndpoint

        return HttpEndpoint(self.context, secrets, **options)

    @cached_property
    def manifests(self) -> Manifests:
        from trax.app.manifests import Manifests

        return Manifests(self.context)

    @cached_property
    def groups(self) -> Groups:
        from trax.app.groups import Groups

        return Groups(self.context)

    @cached_property
    def work_queue(self) -> WorkQueue:
        from trax.app.work_queue import WorkQueue

        return WorkQueue(self.context)

    @cached_property
    def executions(self) -> Executions:
        from trax.app.executions import Executions

        return Executions(self.context, self._enqueuer)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        from trax.app.dead_letters import DeadLetters

        return DeadLetters(self.context)

    @cached_property
    def workers(self) -> Workers:
        from trax.app.workers import Workers

        return Workers(self.context)

    @cached_property
    def settings(self) -> AppSettings:
        from trax.app.settings import AppSettings

        return AppSettings(self.context)

    @cached_property
    def stats(self) -> Stats:
        from trax.app.stats import Stats

        return Stats(self.context)

    @cached_property
    def audit(self) -> Audit:
        from trax.app.audit import Audit

        return Audit(self.context)

    @cached_property
    def sessions(self) -> Sessions:
        from trax.app.sessions import Sessions

        return Sessions(self.context)

    @cached_property
    def logs(self) -> AppLogs:
        from trax.app.executions import AppLogs

        return AppLogs(self.context)

    @cached_property
    def sync(self) -> Sync:
        from trax.app.sync import Sync

        return Sync(self, self._enqueuer)

    @cached_property
    def _enqueuer(self) -> Enqueuer:
        from trax.app.queue import Enqueuer

        return Enqueuer(self.context)

    @overload
    async def run(self, train: Train[In, Out], value: In, *, on: Remote | None = None) -> Out: ...
    @overload
    async def run(self, train: str, value: Any, *, on: Remote | None = None) -> Any: ...
    @explain_call("app.run(train, input), where a train without input gets None")
    async def run(self, train: Train[Any, Any] | str, value: Any, *, on: Remote | None = None) -> Any:
        """Run the train now, in this process, with a record. Its exceptions reach the caller unchanged.

        For a train given by name, the input may be plain data. With `on` it runs remotely and the caller
        waits; an exception there is a RemoteFailure here.
        """
        from trax.worker.recorded_run import RecordedRun, run_on

        found, given = self.context.parameters.resolve(train, value)
        if on is not None:
            return await run_on(on, self.context, found, given)
        return await RecordedRun(self.context, await self.context.store.open(), found).run(given)

    @explain_call("app.queue(train, input), where a train without input gets None")
    async def queue(
        self, train: Train[In, Any] | str, value: In, **options: Unpack[QueueKeywords]
    ) -> QueuedEntry:
        """Enqueue a job. For a train given by name, the input is plain data."""
        return (await self._enqueuer.enqueue(train, [value], options))[0]

    async def queue_many(
        self, train: Train[In, Any] | str, values: Iterable[In], **options: Unpack[ManyKeywords]
    ) -> list[QueuedEntry]:
        """Enqueue any number of jobs in one transaction."""
        from trax.app.queue import refuse_unique

        return await self._enqueuer.enqueue(train, values, refuse_unique(options))

    async def why(self, what: str | int) -> list[Reason]:
        """Why a manifest (its external id), an entry or a run does not run; the first reason first.

        A number is the id of an entry or, if there is no such entry, of a run; `"run:7"` is always a run.
        """
        from trax.inspect.why import why

        return await why(self.context, what)

    async def verify(
        self, *, since: datetime | timedelta | None = None, until: datetime | timedelta | None = None
    ) -> Verification:
        """Check the history of the database, as `trax verify` does; a duration is a moment before now."""
        from trax.inspect.verify import verify
        from trax.schedule.validate import MOMENT_OR_AGO

        MOMENT_OR_AGO("since", since)
        MOMENT_OR_AGO("until", until)
        store = await self.context.store.open()
        declared = self.context.live.declared
        return await asyncio.to_thread(verify, store, since=since, until=until, declared=declared)

    async def __aenter__(self) -> Self:
        """Open the store, seed the declared manifests, and run every role."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(
        self,
        roles: str = "all",
        *,
        concurrency: int | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        **only: Unpack[WorkFilterKeywords],
    ) -> None:
        """Start as `async with` does, for "all" roles, or only as "scheduler" or "worker".

        A worker runs `concurrency` jobs at once; `trains` and `groups` limit which ones it accepts.
        `on_progress` is called with the progress of seeding.
        """
        from trax.server.start import start_process

        if self._running is not None:
            raise TraxError("this app is already running; an app runs one role at a time per process")
        self._running = await start_process(
            self.context, roles, only, concurrency=concurrency, on_progress=on_progress
        )
        self.context.declarations.close()

    @property
    def is_running(self) -> bool:
        """Whether this process runs a role of the app."""
        return self._running is not None

    async def run_in_app_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Await this in the event loop that runs the app, from any loop; in this loop if none does.

        User code keeps things, such as connection pools, that belong to that loop.
        """
        event_loop = self._running.event_loop if self._running else asyncio.get_running_loop()
        return await run_in_loop(event_loop, work)

    @property
    def loops(self) -> list[Loop]:
        """The background loops that run in this process now."""
        return self._running.loops if self._running else []

    @property
    def active_trains(self) -> list[str]:
        """The trains of the runs that execute in this process now, one item a run."""
        return self._running.active_trains if self._running else []

    async def stop(self, interrupt: asyncio.Event | None = None) -> None:
        """Drain, then close the database. Setting `interrupt` interrupts the runs still executing."""
        running, self._running = self._running, None
        self.context.declarations.close(is_closed=False)
        self.context.store.shorten_timeouts()
        try:
            if running is not None:
                await running.stop(interrupt)
        finally:
            self.close()

    async def serve(
        self,
        roles: str = "all",
        *,
        concurrency: int | None = None,
        observer: ServerObserver | None = None,
        **only: Unpack[WorkFilterKeywords],
    ) -> None:
        """Run until SIGTERM or SIGINT, then drain. A second signal interrupts the runs still executing.

        `observer` is called at each step; the command `trax run` prints them.
        """
        from trax.server.roles import ServerObserver

        observer = observer or ServerObserver()
        with StopSignals() as signals:
            starting = self.start(roles, concurrency=concurrency, on_progress=observer.on_progress, **only)
            await signals.run_until_stopped(starting, before_cancel=self.context.store.shorten_timeouts)
            try:
                if not signals.stop_requested.is_set():
                    async with observer.while_running(signals.stop_requested):
                        await signals.stop_requested.wait()
            finally:
                async with observer.while_stopping(signals.interrupt_requested):
                    await self.stop(signals.interrupt_requested)

    def web(self, **options: Unpack[WebKeywords]) -> AsgiApplication:
        """The dashboard and HTTP API as an ASGI application, to serve or to mount: see `trax.web.create`."""
        return import_extra("trax.web", extra="web", feature="app.web()").create(self, **options)

    def close(self) -> None:
        """Close the database. It is opened again on next use."""
        self.context.close()
