"""A duty of a process: what one turn does, how often it polls, and which topics wake it. Those of a worker.

A duty does not know who calls its turns: a loop of a server (`loop.py`), a test step by step (`Harness`), or
a simulation with a virtual clock.

manager ──queued──► dispatcher ──admitted──► claimer ──ended──► finisher ──► the three before it

Where dispatcher and worker share a process there is no claimer: the worker claims in the gate transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.events import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext
    from trax.worker.dispatcher import Dispatcher
    from trax.worker.heartbeat import SchedulerRow
    from trax.worker.worker import Worker

WAKES: Final[Mapping[Topic, frozenset[str]]] = {
    Topic.MANIFEST: frozenset({"manifest_manager"}),
    Topic.WORK_QUEUE: frozenset({"job_dispatcher"}),
    Topic.PENDING: frozenset({"claimer", "hand_over"}),
    Topic.ENDED: frozenset({"finisher", "job_dispatcher"}),
    Topic.SLOTS_FREE: frozenset({"job_dispatcher"}),
    Topic.CANCEL: frozenset({"heartbeat"}),
    Topic.SETTING: frozenset(
        {"manifest_manager", "job_dispatcher", "claimer", "hand_over", "metadata_cleanup", "heartbeat"}
    ),
}
"""Which duties a topic wakes. After results are written, the finisher wakes the dispatcher of its process."""

HANDLED_BY: Final[Mapping[Topic, str]] = {
    Topic.MANIFEST: "manifest_manager",
    Topic.WORK_QUEUE: "job_dispatcher",
}
"""Topics that stay in a process with this duty: it announces its own results to others."""


class DutyKind(Enum):
    """When a duty stops, and whether everything else works without it."""

    INTAKE = "brings new work; stops first"
    HOUSEKEEPING = "may be late; stops first"
    RESULTS = "active runs need it until they have drained"


class Turn(NamedTuple):
    """What one turn did, and the seconds until the next one: 0 for at once, None for the next poll."""

    result: Any = None
    next_in: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """One duty of one process. Turns do not overlap; the first is due `first_after` seconds late."""

    name: str
    turn: Callable[[], Coroutine[Any, Any, Turn]]
    poll_seconds: Callable[[], float]
    kind: DutyKind = DutyKind.INTAKE
    first_after: float = 0
    stands_for: tuple[str, ...] = ()
    """Names in the table of who wakes whom, if they differ from its own."""
    needs_wake: Callable[[Topic], bool] = lambda _: True
    """Whether there may be something to do after this topic."""

    @property
    def topics(self) -> list[Topic]:
        """The topics that may wake it."""
        names = self.stands_for or (self.name,)
        return [topic for topic, woken in WAKES.items() if not woken.isdisjoint(names)]


def claimer(context: AppContext, worker: Worker) -> Duty:
    async def turn() -> Turn:
        slots = worker.slots_to_fill
        claimed = await worker.claim()
        has_more = 0 < slots <= claimed and worker.slots_to_fill > 0  # jobs that compute come a few at a time
        return Turn(claimed, 0 if has_more else None)

    return Duty(name="claimer", turn=turn, poll_seconds=partial(interval_seconds, context, "local_polling"))


def finisher(context: AppContext, store: Store, worker: Worker, dispatcher: Dispatcher | None = None) -> Duty:
    """Writes results, unless the dispatcher of this process does it; else wakes it."""

    async def turn() -> Turn:
        if dispatcher is not None and dispatcher.takes_results():
            return Turn()
        written = await worker.flush()
        if written:
            context.events.emit(Topic.FINISHED)
            if dispatcher is None or not dispatcher.on_runs_ended():
                context.events.emit(Topic.PENDING)
                await store.call(announce_capacity)
        return Turn(written)

    return Duty(
        name="finisher",
        turn=turn,
        poll_seconds=partial(interval_seconds, context, "local_polling"),
        kind=DutyKind.RESULTS,
        needs_wake=lambda _: dispatcher is None or not dispatcher.takes_results(),
    )


def heartbeat(context: AppContext, row: Worker | SchedulerRow) -> Duty:
    """Its first turn is due at its first poll: the row is new."""

    async def turn() -> Turn:
        await row.send_heartbeat()
        return Turn()

    poll = partial(interval_seconds, context, "heartbeat")
    return Duty(name="heartbeat", turn=turn, poll_seconds=poll, kind=DutyKind.RESULTS, first_after=poll())


def announce_capacity(connection: Connection) -> None:
    """Announce free capacity to other processes, if entries are ready.

    Called after the results are committed: an entry written later than this check finds the capacity free.
    """
    from trax.store.announce import announce
    from trax.store.queue import work_queue

    if work_queue.is_any_ready(connection):
        announce(connection, Topic.WORK_QUEUE)


def interval_seconds(context: AppContext, setting: str) -> float:
    """The current value of an interval setting: an operator may change it while a process runs."""
    interval: Any = getattr(context.settings, f"{setting}_interval")
    return interval.total_seconds()


def is_enabled(context: AppContext, name: str) -> bool:
    """Whether a duty that can be disabled is enabled now."""
    return getattr(context.settings, f"{name}_enabled")
