"""The duties of a virtual server: when each runs again, after a wake-up, at a moment, or at a poll."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from trax.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.inspect.simulation import Simulation
    from trax.inspect.virtual_server import VirtualServer

FAILURE_PAUSE: Final = 1.0
POLL_JITTER: Final = 0.2


@dataclass(slots=True)
class Duty:
    """One duty: it has one event at a time, and a wake-up moves it forward."""

    name: str
    turn: Callable[[], float | None]
    poll_seconds: Callable[[], float]
    comes_last: bool = False
    event: int = 0
    next_at: datetime | None = None
    is_requested: bool = True


class Duties:
    """The duties of one server, by name. A turn returns the seconds until it must run again, or None."""

    def __init__(self, simulation: Simulation, server: VirtualServer) -> None:
        self._simulation = simulation
        self._server = server
        self._duties: dict[str, Duty] = {}

    @property
    def names(self) -> set[str]:
        return set(self._duties)

    def __contains__(self, name: str) -> bool:
        return name in self._duties

    def add(
        self,
        name: str,
        turn: Callable[[], float | None],
        poll_seconds: Callable[[], float],
        *,
        seconds: float | None = None,
        comes_last: bool = False,
    ) -> None:
        """Begin a duty, after so many seconds or else at its first poll."""
        duty = self._duties[name] = Duty(name, turn, poll_seconds, comes_last)
        self._schedule(duty, poll_seconds() if seconds is None else seconds)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            del self._duties[name]

    def request(self, name: str, seconds: float = 0.0) -> None:
        """Let a duty run after so many seconds at the latest, if this server has it."""
        duty = self._duties.get(name)
        if duty is None:
            return
        moment = self._simulation.now + timedelta(seconds=seconds)
        if duty.next_at is None or duty.next_at > moment:
            self._schedule(duty, seconds)
        duty.is_requested = True

    def is_requested(self, name: str) -> bool:
        """Whether the turn of this duty was asked for, and is not a mere poll."""
        return self._duties[name].is_requested

    def after(self, seconds: float, act: Callable[[], None]) -> int:
        """Let this happen after so many seconds of the server's own clock."""
        moment = self._simulation.now + timedelta(seconds=seconds / self._server.clock_rate)
        return self._simulation.at(self._simulation.round_off(moment), act, self._server)

    def _schedule(self, duty: Duty, seconds: float) -> None:
        duty.next_at = self._simulation.now + timedelta(seconds=seconds / self._server.clock_rate)
        duty.event += 1
        turn = partial(self._turn, duty, duty.event)
        self._simulation.at(duty.next_at, turn, self._server, comes_last=duty.comes_last)

    def _turn(self, duty: Duty, event: int) -> None:
        """Run the duty, unless it was moved forward since; then sleep until it is due or polls."""
        if self._duties.get(duty.name) is not duty or duty.event != event:
            return
        duty.next_at = None
        try:
            seconds = duty.turn()
        except StoreError as error:
            if not error.transient:
                raise
            seconds = FAILURE_PAUSE
        if self._duties.get(duty.name) is not duty:
            return
        poll = duty.poll_seconds() * self._simulation.random.uniform(1 - POLL_JITTER, 1)
        if duty.next_at is None:  # else it was woken meanwhile
            duty.is_requested = seconds is not None and seconds <= poll
            self._schedule(duty, poll if seconds is None else min(seconds, poll))
