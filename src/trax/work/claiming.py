"""Claims, one at a time, and the runs that a worker holds without knowing: their claim was never answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable


class Before(NamedTuple):
    """What a worker knew before it asked what it holds: its runs, and how many claims were over."""

    known: frozenset[int]
    claims_over: int


class Claiming:
    """Held while a worker takes runs, until it knows of them.

    A connection may die in the moment of a commit. Then the database has the claim, the worker an error, and
    nobody runs what was claimed. A run that is held but not known is such a stray, unless a claim that was
    under way has just brought it; so it is only called one by the first look after that claim is over.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._begun = 0
        self._over = 0
        self._suspects: dict[int, int] = {}
        """Runs that were not known when last seen, and how many claims had begun when first seen."""

    async def __aenter__(self) -> Self:
        await self._lock.acquire()
        self._begun += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over += 1
        self._lock.release()

    def before(self, known: Iterable[int]) -> Before:
        """Remember what is known now, before the database is asked: what ends meanwhile is no stray."""
        return Before(frozenset(known), self._over)

    def strays(self, held: Iterable[int], before: Before) -> set[int]:
        """Which of the runs that the database calls ours nobody here runs, or ever will."""
        unknown = [one for one in held if one not in before.known]
        seen = self._suspects
        strays = {one for one in unknown if one in seen and seen[one] <= before.claims_over}
        self._suspects = {one: seen.get(one, self._begun) for one in unknown}
        return strays
