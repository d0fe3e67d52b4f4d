"""Track claims of a worker, and find orphans: runs claimed in the database that the worker does not know."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable


class ClaimSnapshot(NamedTuple):
    """What a worker knew before it read its runs from the database: their ids, and finished claims."""

    known_ids: frozenset[int]
    finished_claims: int


class ClaimTracker:
    """A lock around each claim, which also finds orphans.

    A connection may fail during the commit of a claim. Then the runs belong to the worker in the database,
    but the worker got an error and does not run them: they are orphans. A run of a claim in progress looks
    the same, so a run counts as an orphan only at the first check after that claim has finished.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._started_claims = 0
        self._finished_claims = 0
        self._suspects: dict[int, int] = {}
        """Unknown runs of the last check, and the number of started claims when each was first seen."""

    async def __aenter__(self) -> Self:
        await self._lock.acquire()
        self._started_claims += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._finished_claims += 1
        self._lock.release()

    def snapshot(self, known_ids: Iterable[int]) -> ClaimSnapshot:
        """Take before the database is read: a run that ends meanwhile is not an orphan."""
        return ClaimSnapshot(frozenset(known_ids), self._finished_claims)

    def orphans(self, held_ids: Iterable[int], snapshot: ClaimSnapshot) -> set[int]:
        """The ids of runs that belong to this worker in the database but will never run here."""
        unknown = [run_id for run_id in held_ids if run_id not in snapshot.known_ids]
        seen = self._suspects
        orphans = {
            run_id for run_id in unknown if run_id in seen and seen[run_id] <= snapshot.finished_claims
        }
        self._suspects = {run_id: seen.get(run_id, self._started_claims) for run_id in unknown}
        return orphans
