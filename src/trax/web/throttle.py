"""Delays for those who guess: longer after each attempt, which is counted before it is checked.

What is refused is counted by address, so that nobody keeps a door shut for somebody elsewhere. A name alone
only slows an attempt down, by two seconds at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

from trax.web.peer import network_of

FORGET_SECONDS: Final = 900.0
REMEMBERED: Final = 10_000
WRONG_REMEMBERED: Final = 1_000
LONGEST_NAME: Final = 200
DOUBLINGS_AT_MOST: Final = 10


class Delay(NamedTuple):
    """So many attempts cost nothing, since people mistype; then each doubles the delay, up to the longest."""

    what: str
    free: int
    first_seconds: float
    longest_seconds: float


PAIR: Final = Delay("name and address", 5, 1.0, 60.0)
ADDRESS: Final = Delay("address", 20, 1.0, 60.0)
TOKEN: Final = Delay("token", 20, 1.0, 60.0)
NAME: Final = Delay("name", 10, 0.25, 2.0)


class Key(NamedTuple):
    """What attempts are counted by."""

    limit: Delay
    address: str = ""
    name: str = ""


class Attempt(NamedTuple):
    """The keys of one attempt to sign in: two that may refuse it, and one that only slows it down."""

    pair: Key
    address: Key
    name: Key

    @classmethod
    def of(cls, name: str, address: str) -> Attempt:
        name, address = name[:LONGEST_NAME], network_of(address)
        return cls(Key(PAIR, address, name), Key(ADDRESS, address), Key(NAME, name=name))


class AttemptCount(NamedTuple):
    """How many attempts there were, and when the last one was."""

    attempts: int
    at: float


@dataclass(slots=True)
class Throttle:
    """Counts attempts in this process; it remembers a bounded number of keys."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    counts: dict[Key, AttemptCount] = field(default_factory=dict[Key, AttemptCount])
    wrong: dict[bytes, None] = field(default_factory=dict[bytes, None])

    def reserve(self, attempt: Attempt) -> float:
        """Count an attempt that is about to be checked; or say how many seconds it is too early."""
        wait = max(self._wait_seconds(attempt.pair), self._wait_seconds(attempt.address))
        if wait <= 0:
            for key in attempt:
                self._add(key)
        return wait

    async def slow_down(self, attempt: Attempt) -> None:
        """Wait a little where a name was tried often, whoever tried it."""
        if seconds := _delay_seconds(NAME, self._count(attempt.name).attempts - 1):
            await self.sleep(seconds)

    def forgive(self, attempt: Attempt) -> None:
        """It was right. Whoever knows one password has not guessed the others, so those stay counted."""
        self.counts.pop(attempt.pair, None)
        for key in (attempt.address, attempt.name):
            self._take_back(key)

    def withdraw(self, attempt: Attempt) -> None:
        """It was not checked after all."""
        for key in attempt:
            self._take_back(key)

    def wait_for_token(self, address: str, secret: str) -> float:
        """How many seconds it is too early for another secret from this address.

        One that is known to be wrong teaches nothing and is not held up: a program with an old token must not
        shut out the others on its machine.
        """
        return 0.0 if self.is_known_wrong(secret) else self._wait_seconds(Key(TOKEN, network_of(address)))

    def is_known_wrong(self, secret: str) -> bool:
        return _digest(secret) in self.wrong

    def note_wrong_token(self, address: str, secret: str) -> None:
        if self.is_known_wrong(secret):
            return
        self._add(Key(TOKEN, network_of(address)))
        self.wrong[_digest(secret)] = None
        while len(self.wrong) > WRONG_REMEMBERED:
            del self.wrong[next(iter(self.wrong))]

    def _add(self, key: Key) -> None:
        count = self._count(key)
        self.counts.pop(key, None)  # to the end: the oldest are forgotten first
        self.counts[key] = AttemptCount(count.attempts + 1, self.clock())
        while len(self.counts) > REMEMBERED:
            del self.counts[next(iter(self.counts))]

    def _take_back(self, key: Key) -> None:
        count = self.counts.get(key)
        if count is not None and count.attempts > 1:
            self.counts[key] = count._replace(attempts=count.attempts - 1)
        else:
            self.counts.pop(key, None)

    def _wait_seconds(self, key: Key) -> float:
        count = self._count(key)
        return max(0.0, count.at + _delay_seconds(key.limit, count.attempts) - self.clock())

    def _count(self, key: Key) -> AttemptCount:
        count = self.counts.get(key, AttemptCount(0, self.clock()))
        return count if self.clock() - count.at < FORGET_SECONDS else AttemptCount(0, self.clock())


def _delay_seconds(limit: Delay, attempts: int) -> float:
    if attempts < limit.free:
        return 0.0
    doublings = min(attempts - limit.free, DOUBLINGS_AT_MOST)
    return min(limit.longest_seconds, limit.first_seconds * 2.0**doublings)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
