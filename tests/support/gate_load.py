"""Many jobs at one gate, and processes that admit them."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING

from tests.support.fleet import (
    has_begun,
    is_idle,
    logged,
    recorded,
    running,
    write_app,
)
from tests.support.verified import assert_clean_store, assert_limits_are_known
from tests.support.waiting import until

from trax import Trax
from trax.store import groups

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from sqlalchemy import Connection
    from tests.support.fleet import Fleet

PRIORITIES = (0, 5, 10, 20, 31)


class GateLoad:
    """So many jobs in so many groups, each with a limit of its own below the one for all."""

    def __init__(self, folder: Path, url: str, *, jobs: int, groups: int, limit: int, poll: float) -> None:
        self.folder = folder
        self.url = url
        self.limit = limit
        self.groups = {f"group-{number}": 1 + number % 4 for number in range(groups)}
        each = jobs // (groups * len(PRIORITIES))
        self.chunks = list(product(self.groups, PRIORITIES))
        random.Random(7).shuffle(self.chunks)  # noqa: S311
        self.jobs = {
            (group, priority): [(group, each * place + number) for number in range(each)]
            for group in self.groups
            for place, priority in enumerate(PRIORITIES)
        }
        self.visible_at: dict[int, datetime] = {}
        write_app(folder, self.groups, limit=limit, poll=poll)

    async def run(self, commands: Sequence[str]) -> None:
        """Queue all of it, bit by bit and in no order, while these processes work on it."""
        client = Trax(self.url)
        try:
            with running(self.folder, self.url, commands) as fleet:
                await self._queue(client, fleet)
            store = await client.context.store.open()
            self.admitted, self.ran = store.read(recorded), logged(self.folder)
            assert_limits_are_known(assert_clean_store(store), self.groups)
        finally:
            client.close()

    async def _queue(self, client: Trax, fleet: Fleet) -> None:
        @client.train
        async def note(job: tuple[str, int]) -> None:
            raise AssertionError(f"{job} is for the others")

        store = await client.context.store.open()

        def wait_until(condition: Callable[[Connection], bool]) -> None:
            until(lambda: fleet.check() or store.read(condition), within_seconds=90)

        wait_until(self._has_limits)  # else verify could not tell which limit was in force at first
        for place, (group, priority) in enumerate(self.chunks):
            jobs = self.jobs[group, priority]
            entries = await client.queue_many(note, jobs, group=group, priority=priority)
            moment = store.read(store.now)
            self.visible_at |= dict.fromkeys((entry.id for entry in entries), moment)
            if place == 0:
                wait_until(has_begun)
        wait_until(is_idle)

    def _has_limits(self, connection: Connection) -> bool:
        found = groups.load_list(connection)
        return {group.name: group.max_active_jobs for group in found} == self.groups
