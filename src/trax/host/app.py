"""`Trax`: what a user holds. It hands out small resources; its own verbs forward in a line or two."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, Self, TypeVar, overload

from trax.admin.seeding import declaration_digest
from trax.errors import TraxError
from trax.host.audit import Audit
from trax.host.checks import SLOTS_OR_NONE
from trax.host.dead_letters import DeadLetters
from trax.host.duties import Retiring
from trax.host.executions import Executions
from trax.host.extras import needed
from trax.host.far import run_on
from trax.host.groups import Groups
from trax.host.live_settings import LiveSettings
from trax.host.logs import Logs
from trax.host.loop import run_in_loop
from trax.host.manifests import Manifests
from trax.host.parts import Parts
from trax.host.queueing import Queueing
from trax.host.receiving import receiving
from trax.host.recorded import RecordedRun
from trax.host.roles import Role, Running
from trax.host.sessions import Sessions
from trax.host.settings import AppSettings
from trax.host.signals import StopSignals
from trax.host.startup import patiently, start
from trax.host.stats import Stats
from trax.host.sync import Sync
from trax.host.takes import Takes
from trax.host.why import why
from trax.host.work_queue import WorkQueue
from trax.host.workers import Workers
from trax.records.worker import Watch
from trax.store.url import chosen_url
from trax.train import train as train_over
from trax.train import train_of
from trax.train.names import check_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    from trax.dispatch.submit import Submitter
    from trax.host.entry import QueuedEntry
    from trax.host.far import Far, Remote
    from trax.host.loop import Loop
    from trax.host.receiving import Receiver
    from trax.host.takes import Only
    from trax.host.wishes import ManyKeywords, QueueKeywords
    from trax.records.reason import Reason
    from trax.train import Segment, Train, TrainKeywords
    from trax.train.services import Made, Managed

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")


class TrainDecorator(Protocol):
    """What `@app.train(…)` with options gives: it makes one function a train."""

    @overload
    def __call__(self, function: Callable[Concatenate[In, ...], Awaitable[Out]], /) -> Train[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[], Awaitable[Out]], /) -> Train[None, Out]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[In, ...], Out], /) -> Train[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[], Out], /) -> Train[None, Out]: ...


class Trax:
    """An app: its trains, their services, and the database their records live in.

    Declaring touches no database; it is opened, and migrated, when it is first needed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "default",
        submitter: Submitter | None = None,
        **settings: Any,
    ) -> None:
        """`name` tells apps on one database apart: each retires only manifests it has declared itself."""
        check_name(name, "an app's name")
        self.parts = Parts.made(chosen_url(url), LiveSettings.load(settings), name)
        """What the app is made of, for those that run it."""
        self._queueing = Queueing(self.parts)
        self.trains = self.parts.trains
        self.submitters = self.parts.submitters
        if submitter is not None:
            self.submitters.default = submitter
        self.schedule = self.parts.declarations.schedule
        self.schedule_many = self.parts.declarations.schedule_many
        self.schedule_once = self.parts.declarations.schedule_once
        self.group = self.parts.declarations.group
        self.calendar = self.parts.declarations.calendar
        self.on_queue = self.parts.hooks.on_queue
        self.on_started = self.parts.hooks.on_started
        self.on_completed = self.parts.hooks.on_completed
        self.on_failed = self.parts.hooks.on_failed
        self.on_cancelled = self.parts.hooks.on_cancelled
        self.on_state_changed = self.parts.hooks.on_state_changed
        self.limit_runs = self.parts.limits.set
        self.manifests = Manifests(self.parts)
        self.groups = Groups(self.parts)
        self.dead_letters = DeadLetters(self.parts)
        self.settings = AppSettings(self.parts)
        self.executions = Executions(self.parts, self._queueing)
        self.work_queue = WorkQueue(self.parts)
        self.workers = Workers(self.parts)
        self.stats = Stats(self.parts)
        self.audit = Audit(self.parts)
        self.sessions = Sessions(self.parts)
        self.logs = Logs(self.parts)
        self.sync = Sync(self, self._queueing)
        self._running: Running | None = None

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
        """Define a train: a name and a route, or one function (`@app.train`, `@app.train(max_retries=5)`)."""
        if what is None:
            return partial(self._define, **options)
        return self._define(what, route, **options)

    def _define(self, what: Any, route: Any = None, **options: Any) -> Train[Any, Any]:
        options["services"] = self.parts.services
        defined = train_of(what, **options) if route is None else train_over(what, route, **options)
        self.parts.parameters.of_input(defined)
        self.trains.add(defined)
        if defined.options.group is not None:
            self.group(defined.options.group)
        return defined

    def provide(
        self, kind: type[T], factory: T | Callable[..., Made[T] | Managed[T]], *, close: bool = True
    ) -> None:
        """Answer junctions that ask for `kind` with what `factory` gives, made at most once a run."""
        self.parts.services.provide(kind, factory, close=close)

    def route(self, *trains: Train[Any, Any], to: Submitter | str) -> None:
        """Have others execute these trains: a submitter, or the name of one; "local" is our own workers."""
        for train in trains:
            self.parts.parameters.of_registered(train)
            self.submitters.route(train.name, to)

    def receiving(
        self, *, concurrency: int | None = None, far: Far | None = None
    ) -> AbstractAsyncContextManager[Receiver]:
        """Take up runs that a submitter handed to this process: `await receiver.take_up(metadata_id)`."""
        return receiving(self.parts, concurrency=concurrency, far=far)

    def http_endpoint(self, secrets: str | Mapping[str, str], **options: Any) -> Any:
        """An ASGI application that executes what `HttpWorkers` hands over, to serve or to mount anywhere."""
        endpoints = import_module("trax.submitters.http_endpoint")  # a layer above this one
        return endpoints.HttpEndpoint(self.parts, secrets, **options)

    async def run(self, train: Train[In, Out], value: In, *, on: Remote | None = None) -> Out:
        """Run here and now, recorded; what the train raises reaches the caller as it is.

        With `on` it runs there, and its caller waits; what it raises there is a RemoteFailure here.
        """
        if on is not None:
            return await run_on(on, self.parts, train, value)
        return await RecordedRun(self.parts, await self.parts.store.opened(), train).of(value)

    async def queue(
        self, train: Train[In, Any] | str, value: In, **how: Unpack[QueueKeywords]
    ) -> QueuedEntry:
        """Ask for a run in the background. A train that is named takes its input as plain data."""
        return await self._queueing.one(train, value, how)

    async def queue_many(
        self, train: Train[In, Any] | str, values: Iterable[In], **how: Unpack[ManyKeywords]
    ) -> list[QueuedEntry]:
        """Ask for any number of runs in one transaction."""
        return await self._queueing.many(train, values, how)

    async def why(self, what: str | int) -> list[Reason]:
        """What keeps a manifest (its external id), an entry or a run from running, what holds first.

        A number is that of an entry, else of a run; `"run:7"` leaves no doubt.
        """
        return await why(self.parts, what)

    async def __aenter__(self) -> Self:
        """Open the store, bring its manifests in line with what is declared, and run every duty."""
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
        **only: Unpack[Only],
    ) -> None:
        """What entering the block does, for "all" roles, or as a "scheduler" or a "worker" only.

        A worker runs `concurrency` jobs at once, with `trains` and `groups` only those of these names.
        `on_progress` hears how far seeding has come.
        """
        if self._running is not None:
            raise TraxError("this app runs already; an app has one role at a time in one process")
        SLOTS_OR_NONE("concurrency", concurrency)
        parts, role = self.parts, Role.named(roles)
        parts.telemetry.look_again()
        timetable = parts.declarations.checked()
        self.submitters.check(self.trains)
        takes = Takes.checked(self.trains, only)
        retiring: Retiring | None = None
        try:
            store = (await patiently(parts.store.opened)).engine_lane
            if role.schedules:
                parts.presence.declares = declaration_digest(timetable)
                watch = parts.presence.watch or Watch.never()
                plan = await start(
                    store,
                    timetable,
                    parts.settings,
                    app=parts.name,
                    on_progress=on_progress,
                    watch=watch,
                )
                if plan.retired.postponed:
                    retiring = Retiring(timetable, plan.retired.postponed)
            how: dict[str, Any] = {"slots": concurrency, "takes": takes, "retiring": retiring}
            self._running = await patiently(lambda: Running.started(parts, store, role, **how))
        except BaseException:
            self.close()
            raise

    @property
    def is_running(self) -> bool:
        """Whether this process runs a role of the app."""
        return self._running is not None

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this in the event loop that runs a role of the app, whichever loop asks; without a role, here.

        Code of the user lives there: what it keeps, such as a pool of connections, belongs to that loop.
        """
        home = self._running.home if self._running else asyncio.get_running_loop()
        return await run_in_loop(home, work)

    @property
    def loops(self) -> list[Loop]:
        """The duties that this process does at this moment."""
        return self._running.loops if self._running else []

    @property
    def under_way(self) -> list[str]:
        """The trains that this process runs at this moment, each as often as it does."""
        return self._running.under_way if self._running else []

    async def stop(self, hurry: asyncio.Event | None = None) -> None:
        """Let what is under way end, then let go of the database; `hurry` interrupts it when it is set."""
        running, self._running = self._running, None
        self.parts.store.hurry()
        try:
            if running is not None:
                await running.stop(hurry)
        finally:
            self.close()

    async def serve(
        self, roles: str = "all", *, concurrency: int | None = None, **only: Unpack[Only]
    ) -> None:
        """Run until SIGTERM or SIGINT, then let what is under way end; a second signal interrupts it."""
        with StopSignals() as signals:
            starting = self.start(roles, concurrency=concurrency, **only)
            await signals.unless_asked(starting, hurry=self.parts.store.hurry)
            try:
                await signals.asked.wait()
            finally:
                await self.stop(signals.hurried)

    def web(self, **options: Any) -> Any:
        """The control room of this app, an ASGI application to serve or to mount: see `trax.web.create`."""
        return needed("trax.web", extra="web", by="app.web()").create(self, **options)

    def close(self) -> None:
        """Let go of the database. It is opened again if it is needed again."""
        self.parts.notebook.shut()
        self.parts.presence.close()
        self.parts.store.close()
