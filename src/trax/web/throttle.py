"""Rate limits for guessed passwords and tokens: delays grow with each attempt.

An attempt is counted before it is verified. Only counts by address refuse attempts, so no one can lock a user
out from elsewhere; the count of a name alone only slows attempts down, by two seconds at most. An IPv6
address counts for three networks: who has a wider one can use thousands of addresses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

from trax.web.peer import networks_of
from trax.web.problems import Refusal, problem

FORGET_SECONDS: Final = 900.0
KEYS_KEPT: Final = 10_000
WRONG_SECRETS_KEPT: Final = 1_000
LONGEST_NAME: Final = 200
MAX_DOUBLINGS: Final = 10


class Delay(NamedTuple):
    """`free` attempts have no delay, since people mistype; each further one doubles it, up to the longest."""

    what: str
    free: int
    first_seconds: float
    longest_seconds: float


PAIR: Final = Delay("name and address", 5, 1.0, 60.0)
ADDRESS: Final = Delay("address", 20, 1.0, 60.0)
ADDRESSES: Final = (ADDRESS, Delay("network", 40, 1.0, 60.0), Delay("site", 80, 1.0, 60.0))
"""For the networks of an address, the narrowest first."""
TOKEN: Final = Delay("token", 20, 1.0, 60.0)
TOKENS: Final = (TOKEN, Delay("token by network", 40, 1.0, 60.0), Delay("token by site", 80, 1.0, 60.0))
NAME: Final = Delay("name", 10, 0.25, 2.0)


class Key(NamedTuple):
    """The key by which attempts are counted."""

    limit: Delay
    address: str = ""
    name: str = ""


class Attempt(NamedTuple):
    """The keys of one login attempt: those that may refuse it, and one that only slows it down."""

    pair: Key
    addresses: tuple[Key, ...]
    name: Key

    @classmethod
    def of(cls, name: str, address: str) -> Attempt:
        name, addresses = name[:LONGEST_NAME], _network_keys(ADDRESSES, address)
        return cls(Key(PAIR, addresses[0].address, name), addresses, Key(NAME, name=name))

    @property
    def keys(self) -> tuple[Key, ...]:
        return (self.pair, *self.addresses, self.name)

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks of the address, the narrowest first."""
        return tuple(key.address for key in self.addresses)


class AttemptCount(NamedTuple):
    """Number of attempts, and the time of the last one."""

    attempts: int
    at: float


@dataclass(slots=True)
class Throttle:
    """Counts attempts in this process, for a bounded number of keys."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    counts: dict[Key, AttemptCount] = field(default_factory=dict[Key, AttemptCount])
    wrong: dict[bytes, None] = field(default_factory=dict[bytes, None])

    def reserve(self, attempt: Attempt) -> float:
        """Count an attempt before it is verified, or return the seconds to wait."""
        wait = max(map(self._wait_seconds, (attempt.pair, *attempt.addresses)))
        if wait <= 0:
            for key in attempt.keys:
                self._increment(key)
        return wait

    def is_first(self, attempt: Attempt) -> bool:
        """Whether no other attempt from these networks has failed, or is still being verified."""
        return all(self._count(key).attempts <= 1 for key in attempt.addresses)

    async def slow_down(self, attempt: Attempt) -> None:
        """Delay an attempt for a name that was tried often, from any address."""
        if seconds := _delay_seconds(NAME, self._count(attempt.name).attempts - 1):
            await self.sleep(seconds)

    def forgive(self, attempt: Attempt) -> None:
        """The attempt succeeded: forget its name and address pair; other counts only lose this attempt."""
        self.counts.pop(attempt.pair, None)
        for key in (*attempt.addresses, attempt.name):
            self._decrement(key)

    def withdraw(self, attempt: Attempt) -> None:
        """The attempt was not verified: remove it from the counts."""
        for key in attempt.keys:
            self._decrement(key)

    def wait_for_token(self, address: str, secret: str) -> float:
        """The seconds to wait before another secret from this address is verified.

        A secret known to be wrong is not delayed, since repeating it reveals nothing: a program with an old
        token must not lock out others on its machine.
        """
        keys = _network_keys(TOKENS, address)
        return 0.0 if self.is_known_wrong(secret) else max(map(self._wait_seconds, keys))

    def is_known_wrong(self, secret: str) -> bool:
        return _digest(secret) in self.wrong

    def note_wrong_token(self, address: str, secret: str) -> None:
        if self.is_known_wrong(secret):
            return
        for key in _network_keys(TOKENS, address):
            self._increment(key)
        self.wrong[_digest(secret)] = None
        while len(self.wrong) > WRONG_SECRETS_KEPT:
            del self.wrong[next(iter(self.wrong))]

    def _increment(self, key: Key) -> None:
        count = self._count(key)
        self.counts.pop(key, None)  # move to the end: the oldest are dropped first
        self.counts[key] = AttemptCount(count.attempts + 1, self.clock())
        while len(self.counts) > KEYS_KEPT:
            del self.counts[next(iter(self.counts))]

    def _decrement(self, key: Key) -> None:
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


def _network_keys(limits: tuple[Delay, ...], address: str) -> tuple[Key, ...]:
    networks = networks_of(address)
    return tuple(Key(limit, network) for limit, network in zip(limits, networks, strict=False))


def _delay_seconds(limit: Delay, attempts: int) -> float:
    if attempts < limit.free:
        return 0.0
    doublings = min(attempts - limit.free, MAX_DOUBLINGS)
    return min(limit.longest_seconds, limit.first_seconds * 2.0**doublings)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def throttle_refusal(why: str, wait: float) -> Refusal:
    """The response to a client that must wait."""
    seconds = str(int(wait) + 1)
    return Refusal(problem(429, f"{why}; try again in {seconds} s"), {"Retry-After": seconds})
