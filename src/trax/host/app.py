"""`Trax`: what a user holds. It hands out small resources; its own verbs forward in a line or two."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, Self, TypeVar, overload

from trax.host.dead_letters import DeadLetters
from trax.host.executions import Executions
from trax.host.groups import Groups
from trax.host.manifests import Manifests
from trax.host.parts import Parts
from trax.host.queueing import Queueing
from trax.host.recorded import RecordedRun
from trax.host.roles import running
from trax.host.signals import stop_signal
from trax.host.startup import patiently, start
from trax.host.sync import Sync
from trax.settings import Settings
from trax.store.url import chosen_url
from trax.train import train as train_over
from trax.train import train_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    from trax.host.queueing import QueueKeywords
    from trax.records import WorkQueueEntry
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

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self.parts = Parts.made(chosen_url(url), Settings.load(settings))
        """What the app is made of, for those that run it."""
        self._queueing = Queueing(self.parts)
        self.trains = self.parts.trains
        self.schedule = self.parts.declarations.schedule
        self.schedule_many = self.parts.declarations.schedule_many
        self.schedule_once = self.parts.declarations.schedule_once
        self.group = self.parts.declarations.group
        self.calendar = self.parts.declarations.calendar
        self.manifests = Manifests(self.parts)
        self.groups = Groups(self.parts)
        self.dead_letters = DeadLetters(self.parts)
        self.executions = Executions(self.parts.store)
        self.sync = Sync(self, self._queueing)
        self._duties: AbstractAsyncContextManager[None] | None = None

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

    async def run(self, train: Train[In, Out], value: In) -> Out:
        """Run here and now, recorded; what the train raises reaches the caller as it is."""
        return await RecordedRun(await self.parts.store.opened(), train, self.parts.parameters).of(value)

    async def queue(self, train: Train[In, Any], value: In, **how: Unpack[QueueKeywords]) -> WorkQueueEntry:
        """Ask for a run in the background."""
        return (await self._queueing.add(train, [value], **how))[0]

    async def queue_many(
        self, train: Train[In, Any], values: Iterable[In], **how: Unpack[QueueKeywords]
    ) -> list[WorkQueueEntry]:
        """Ask for any number of runs in one transaction."""
        return await self._queueing.add(train, values, **how)

    async def __aenter__(self) -> Self:
        """Open the store, bring its manifests in line with what is declared, and run every duty."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """What entering the block does; `on_progress` hears how far seeding has come."""
        parts = self.parts
        timetable = parts.declarations.checked()
        try:
            store = await patiently(parts.store.opened)
            await start(store, timetable, parts.settings, on_progress=on_progress)
            duties = running(parts, store)
            await duties.__aenter__()
        except BaseException:
            self.close()
            raise
        self._duties = duties

    async def stop(self) -> None:
        """Let what is under way end, then let go of the database."""
        duties, self._duties = self._duties, None
        if duties is not None:
            await duties.__aexit__(None, None, None)
        self.close()

    async def serve(self) -> None:
        """Run every duty until SIGTERM or SIGINT, then let what is under way end."""
        async with self:
            await stop_signal()

    def close(self) -> None:
        """Let go of the database. It is opened again if it is needed again."""
        self.parts.store.close()
