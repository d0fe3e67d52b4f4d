"""The core of a simulation: a database in memory, a virtual clock, and the order of events from one seed.

The events are transactions of the real engine, run by the servers in `virtual_server.py`. Only time, the work
of trains and faults are virtual: a `Workload` draws what the code of trains does. No thread is started and
nothing waits, so the same seed gives the same events in the same order. `VirtualDuties` runs the duties of a
server: a turn follows after a wake-up, when the last turn says so, or at a poll.

Not simulated: `app.run`, handing over to remote engines, jobs in other processes, and connections.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter, deque
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeVar

from trax.engine.retry import JITTER
from trax.errors import RunCancelled, Snooze, StoreError, StoreUnavailable
from trax.inspect.simulated_store import TopicCollector, open_in_memory
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome
from trax.train.outcome import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable

    from trax.clock import Clock
    from trax.events import Topic
    from trax.inspect.simulated_store import InlineStore
    from trax.inspect.virtual_server import VirtualServer
    from trax.store import Connection
    from trax.store.announce import Announcer
    from trax.store.runs.claim import Claimed
    from trax.worker.duties import Duty, DutyKind


P = ParamSpec("P")
T = TypeVar("T")

LOGGER: Final = logging.getLogger("trax")
EVENT_LOG_LINES: Final = 60
"""How many of the last events a log keeps by default."""
NAMED_IDS: Final = 6
"""How many ids a line of the log names at most."""


class TransactionFault(Enum):
    """The fault of one transaction of a server."""

    REFUSED = "the database rejects it"
    RESPONSE_LOST = "it is committed, and the response is lost"
    CRASH_BEFORE = "the server crashes, and nothing is committed"
    CRASH_AFTER = "it is committed, and the server crashes"
    PAUSE_AFTER = "it is committed, and the server is suspended"


class Faults:
    """The faults of a simulation: none here. A subclass draws faults from the simulation's random."""

    def of_transaction(self, server: VirtualServer, step: str) -> TransactionFault | None:  # noqa: ARG002
        """The fault of the transaction that this server begins now."""
        return None

    def loses_wake_up(self, server: VirtualServer, topic: Topic) -> bool:  # noqa: ARG002
        """Whether this server misses the announcement: then it finds the change at its next poll."""
        return False

    def notification_seconds(self) -> float:
        """How long an announcement takes to another server."""
        return 0.0

    def pause_seconds(self) -> float:
        """How long a server is suspended after a transaction."""
        return 0.0


class Observer:
    """Called for each transaction after its commit; this class does nothing."""

    def on_commit(self, step: str, server: VirtualServer | None) -> None:
        """The database has the changes of this step."""

    def on_start(self, server: VirtualServer, metadata_id: int) -> None:
        """A server starts to execute a run."""


class ServerCrash(BaseException):
    """The server stops here, and forgets everything in its memory; no code of the server may catch it."""


class EventLog:
    """The last events of a simulation, in plain words; `keep=None` keeps all of them."""

    def __init__(self, keep: int | None = EVENT_LOG_LINES) -> None:
        self._lines: deque[tuple[datetime, str, str, tuple[Any, ...]]] = deque(maxlen=keep)

    def add(self, now: datetime, who: str, text: str, *values: Any) -> None:
        """Add an event. It is formatted only when the log is read."""
        self._lines.append((now, who, text, values))

    def format(self) -> str:
        return "\n".join(
            f"{now:%a %d %H:%M:%S}.{now.microsecond // 1000:03d}  {who:<10} {text % values}"
            for now, who, text, values in self._lines
        )


def list_ids(ids: Iterable[Any]) -> str:
    """The first of these ids, for the event log."""
    known = list(ids)
    more = f" and {len(known) - NAMED_IDS} more" if len(known) > NAMED_IDS else ""
    return (", ".join(map(str, known[:NAMED_IDS])) or "none") + more


class Event(NamedTuple):
    """Something that happens at a time. Events of the same time happen in an order drawn from the seed."""

    at: datetime
    tie: float
    number: int
    act: Callable[[], None]
    server: VirtualServer | None


class Simulation:
    """The database, the clock, the servers, and the events to come."""

    def __init__(
        self,
        seed: int,
        start: datetime,
        *,
        resolution: timedelta | None = None,
        faults: Faults | None = None,
        observer: Observer | None = None,
        event_log: EventLog | None = None,
        open_store: Callable[[Clock, Announcer], InlineStore] | None = None,
    ) -> None:
        self.seed = seed
        self.now = start
        self._start = start
        self._resolution = resolution
        self.random = Random(seed)  # noqa: S311 - repeatable, not secret
        self.faults = faults or Faults()
        self.observer = observer or Observer()
        self.event_log = event_log or EventLog()
        self.servers: list[VirtualServer] = []
        self.is_database_up = True
        self.counts: Counter[str] = Counter()
        """How often each kind of step was committed."""
        self.events = 0
        self._collector = TopicCollector()
        self.store = (open_store or open_in_memory)(lambda: self.now, self._collector)
        self._heap: list[Event] = []
        self._numbers = 0

    @contextmanager
    def open(self) -> Generator[Simulation]:
        """Create the database for this block, and draw the jitter of the engine from the seed.

        Log lines of the engine are not shown, since its events are only simulated.
        """
        token, level = JITTER.set(self.random), LOGGER.level
        LOGGER.setLevel(logging.CRITICAL)
        try:
            with closing(self.store):
                self.store.open()
                yield self
        finally:
            LOGGER.setLevel(level)
            JITTER.reset(token)

    def at(
        self,
        moment: datetime,
        act: Callable[[], None],
        server: VirtualServer | None = None,
        *,
        comes_last: bool = False,
    ) -> int:
        """Schedule an event; it is dropped if the server has crashed by then. Returns its number.

        With `comes_last` it follows the other events of the same time.
        """
        self._numbers += 1
        tie = self.random.random() + comes_last
        event = Event(max(moment, self.now), tie, self._numbers, act, server)
        heapq.heappush(self._heap, event)
        return self._numbers

    def after(self, delay: timedelta, act: Callable[[], None], server: VirtualServer | None = None) -> int:
        return self.at(self.now + delay, act, server)

    def after_others(self, delay: timedelta, act: Callable[[], None], server: VirtualServer) -> None:
        """The same; where times are rounded, at once, but after all other events of this time."""
        self.at(self.now if self.is_coarse else self.now + delay, act, server, comes_last=self.is_coarse)

    @property
    def is_coarse(self) -> bool:
        """Whether times are rounded, so that many events have the same time."""
        return self._resolution is not None

    def round_up(self, moment: datetime) -> datetime:
        """The first multiple of the resolution from this moment on, so that no event is early.

        Events of the same time share one transaction.
        """
        return moment if self._resolution is None else moment + (self._start - moment) % self._resolution

    def round_delay(self, seconds: float) -> float:
        """A delay from now on that ends at a multiple of the resolution; 0 stays at once."""
        later = self.now + timedelta(seconds=seconds)
        return (self.round_up(later) - self.now).total_seconds() if seconds else 0.0

    def round_off(self, moment: datetime) -> datetime:
        """The nearest multiple of the resolution, which keeps the average duration of runs."""
        return moment if self._resolution is None else self.round_up(moment - self._resolution / 2)

    def run_until(self, end: datetime) -> None:
        """Run all events up to this time."""
        while self._heap and self._heap[0].at <= end:
            self.step()
        self.now = max(self.now, end)

    def step(self) -> None:
        """Run the next event. An event of a suspended server is postponed until the server continues."""
        event = heapq.heappop(self._heap)
        self.now = event.at
        server = event.server
        if server is not None:
            if not server.is_alive:
                return
            if server.suspended_until is not None and self.now < server.suspended_until:
                self.at(server.suspended_until, event.act, server)
                return
        self.events += 1
        try:
            event.act()
        except ServerCrash:
            if server is not None:
                server.crash()

    @contextmanager
    def transaction(self, server: VirtualServer, step: str) -> Generator[None]:
        """A block that runs one transaction, with the fault that is drawn for it, if any."""
        fault = self.faults.of_transaction(server, step) if self.is_database_up else TransactionFault.REFUSED
        if fault is TransactionFault.REFUSED:
            raise StoreUnavailable("the database is unavailable")
        if fault is not None:
            self.event_log.add(self.now, server.name, "%s: %s", step, fault.value)
        if fault is TransactionFault.CRASH_BEFORE:
            raise ServerCrash
        yield
        self.settle(step, server)
        if fault is TransactionFault.CRASH_AFTER:
            raise ServerCrash
        if fault is TransactionFault.PAUSE_AFTER:
            server.suspend(self.faults.pause_seconds())
        if fault is TransactionFault.RESPONSE_LOST:
            raise StoreUnavailable("the response of the database was lost")

    def settle(self, step: str, server: VirtualServer | None = None) -> None:
        """Notify the observer of the commit, and wake the servers that wait for it."""
        self.counts[step] += 1
        self.observer.on_commit(step, server)
        for topic, is_for_others in self._collector.take():
            self._deliver(topic, server, is_for_others=is_for_others)

    def complete(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that never waits for an event loop."""
        try:
            coroutine.send(None)
        except StopIteration as ended:
            return ended.value
        coroutine.close()
        raise RuntimeError("a duty waits for an event loop, and a simulation has none")

    def read(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction that only reads."""
        if not self.is_database_up:
            raise StoreUnavailable("the database is unavailable")
        return self.store.read(function, *args, **kwargs)

    def log(self, who: str, text: str, *values: Any) -> None:
        """Add an event to the log."""
        self.event_log.add(self.now, who, text, *values)

    def _deliver(self, topic: Topic, sender: VirtualServer | None, *, is_for_others: bool) -> None:
        """Wake the loops that wait for this topic, here at once and elsewhere after a notification.

        A topic that a loop of the sender handles is not sent, as in a real server.
        """
        is_handled = sender is not None and not is_for_others and sender.handles(topic)
        for server in self.servers:
            if server is sender:
                if not is_for_others:
                    server.duties.wake(topic)
            elif not is_handled and not self.faults.loses_wake_up(server, topic):
                server.duties.wake(topic, self.faults.notification_seconds())


class DrawnJob(NamedTuple):
    """What the code of a train does in one run: how long it takes, and what it raises."""

    seconds: float
    raised: Exception | None = None


class Workload(Protocol):
    """Draws what the code of trains does."""

    def draw(self, job: Claimed, server: VirtualServer) -> DrawnJob: ...


def outcome_of(job: Claimed, raised: Exception | None) -> Outcome[Any]:
    """The outcome of a run that raises this, as for a real run."""
    if raised is None:
        return Done(None)
    if isinstance(raised, RunCancelled):
        return Cancelled(str(raised))
    if isinstance(raised, Snooze):
        return Interrupted(str(raised), raised.delay)
    return Failed(
        raised, describe(raised, train=job.train, external_id=job.external_id, junction="simulated")
    )


FAILURE_PAUSE: Final = 1.0
POLL_JITTER: Final = 0.2


class VirtualTurns:
    """The turns of one duty of a server: there is one event at a time, and a wake-up moves it forward."""

    def __init__(self, server: VirtualServer) -> None:
        self.duty: Duty | None = None
        self.topics: frozenset[Topic] = frozenset()
        self.is_requested = True
        self._server = server
        self._simulation = server.simulation
        self._event = 0
        self._next_at: datetime | None = None

    @property
    def is_stopping(self) -> bool:
        return self.duty is None

    def begin(self, duty: Duty) -> None:
        self.duty, self.topics, self.is_requested = duty, frozenset(duty.topics), True
        self._schedule(duty.first_after)

    def wake(self, seconds: float = 0.0) -> None:
        """Run the duty after at most this many seconds, if this server has it."""
        if self.duty is None:
            return
        if self._next_at is None or self._next_at > self._simulation.now + timedelta(seconds=seconds):
            self._schedule(seconds)
        self.is_requested = True

    def _schedule(self, seconds: float) -> None:
        self._next_at = self._simulation.now + timedelta(seconds=seconds / self._server.clock_rate)
        self._event += 1
        self._simulation.at(self._next_at, partial(self._run_turn, self.duty, self._event), self._server)

    def _run_turn(self, duty: Duty | None, event: int) -> None:
        """Run a turn, unless it was moved forward since; then sleep until the next is due or polls."""
        if duty is None or self.duty is not duty or self._event != event:
            return
        self._next_at = None
        try:
            result, seconds = self._simulation.complete(duty.turn())
            self._server.note_turn(duty.name, result)
        except StoreError as error:
            if not error.transient:
                raise
            seconds = FAILURE_PAUSE
        if self.duty is not duty:
            return
        poll = duty.poll_seconds() * self._simulation.random.uniform(1 - POLL_JITTER, 1)
        if self._next_at is None:  # else it was woken meanwhile
            self.is_requested = seconds is not None and seconds <= poll
            self._schedule(poll if seconds is None else min(self._simulation.round_delay(seconds), poll))


class VirtualDuties:
    """Runs the duties of one server: each turn is an event."""

    def __init__(self, server: VirtualServer) -> None:
        self._server = server
        self._turns: dict[str, VirtualTurns] = {}

    def __contains__(self, name: str) -> bool:
        return not self.turns_of(name).is_stopping

    def turns_of(self, name: str) -> VirtualTurns:
        """The turns of a duty, for one that wakes itself; it need not be added yet."""
        return self._turns.setdefault(name, VirtualTurns(self._server))

    def add(self, duties: Iterable[Duty]) -> None:
        for duty in duties:
            self.turns_of(duty.name).begin(duty)

    def remove(self, *kinds: DutyKind) -> None:
        """Remove the duties of these kinds, or all of them."""
        for turns in self._turns.values():
            if turns.duty is not None and (not kinds or turns.duty.kind in kinds):
                turns.duty = None

    def wake(self, topic: Topic, seconds: float = 0.0) -> None:
        """Run the duties that wait for this topic after at most this many seconds."""
        for turns in self._turns.values():
            if topic in turns.topics and turns.duty is not None and turns.duty.needs_wake(topic):
                turns.wake(seconds)
