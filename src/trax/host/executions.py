"""`app.executions`: the record of every attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.withdrawal import cancel_runs
from trax.errors import NotFound
from trax.host.checks import ID, ID_OR_NONE, MOMENT, PAGE, checked_ids
from trax.host.words import checked_word
from trax.records.states import State
from trax.store import logs, metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from trax.host.entry import QueuedEntry
    from trax.host.parts import Parts
    from trax.host.queueing import Queueing
    from trax.records import Metadata
    from trax.records.log_line import LogLine
    from trax.settings import Settings
    from trax.store import Connection, Store


class Executions:
    """What ran, what runs, and how it ended."""

    def __init__(self, parts: Parts, queueing: Queueing) -> None:
        self._store = parts.store
        self._live = parts.live
        self._queueing = queueing

    async def get(self, metadata_id: int) -> Metadata:
        store = await self._store.opened()
        found = await store.ask(metadata.get, ID("metadata_id", metadata_id))
        if found is None:
            raise NotFound(f"there is no execution {metadata_id}")
        return found

    async def list(
        self,
        *,
        state: State | str | None = None,
        train: str | None = None,
        manifest: str | None = None,
        group: str | None = None,
        parent_id: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
        admin: bool = False,
    ) -> list[Metadata]:
        """Newest first. To read on, pass the id of the last one as `before`.

        `since` and `until` are about when a run was made: from the first moment on, and before the second.
        The runs of administrative trains are left out, unless `admin` wants them or `train` names one.
        """
        for name, moment in (("since", since), ("until", until)):
            if moment is not None:
                MOMENT(name, moment)
        wanted = checked_word(State, state)
        store = await self._store.opened()
        return await store.ask(
            metadata.listed,
            state=wanted,
            train=train,
            manifest=manifest,
            group=group,
            parent_id=ID_OR_NONE("parent_id", parent_id),
            since=since,
            until=until,
            before=ID_OR_NONE("before", before),
            limit=PAGE("limit", limit),
            admin=admin,
        )

    async def cancel(self, ids: Iterable[int]) -> Sequence[int]:
        """Stop those of these runs that are not over; returns which.

        One that no worker has begun is cancelled at once. One in progress is asked to stop: in this process
        immediately, in another within a heartbeat.
        """
        wanted = checked_ids(ids)
        store = await self._store.opened()
        return await store.call(_cancel, store, wanted, self._live.now)

    async def rerun(self, metadata_id: int) -> QueuedEntry:
        """Queue the same train with the same input, group and priority once more.

        It is an extra run: no schedule waits for it, counts its failures or is put off by it.
        """
        return await self._queueing.rerun(ID("metadata_id", metadata_id))

    async def logs(
        self, metadata_id: int, *, after: int | None = None, limit: int = 100
    ) -> Sequence[LogLine]:
        """The lines that a run logged, oldest first. To read on, pass the id of the last one as `after`."""
        page = PAGE("limit", limit)
        store = await self._store.opened()
        wanted, last = ID("metadata_id", metadata_id), ID_OR_NONE("after", after)
        return await store.ask(logs.of_run, wanted, after=last, limit=page)


def _cancel(connection: Connection, store: Store, ids: list[int], settings: Settings) -> list[int]:
    return cancel_runs(connection, ids, settings, now=store.now(connection))
