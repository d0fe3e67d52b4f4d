"""`app.executions`: the record of every attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from trax.admin.withdrawal import cancel_runs
from trax.errors import NotFound
from trax.host.acting import note
from trax.host.asked_lists import AskedLists
from trax.host.checks import ID, ID_OR_NONE, PAGE, check_moments, check_names, checked_ids
from trax.host.withdrawing import withdraw
from trax.host.words import checked_word
from trax.records.filters import RunFilter
from trax.records.states import State
from trax.store import logs, metadata, run_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from typing import Unpack

    from trax.host.entry import QueuedEntry
    from trax.host.parts import Parts
    from trax.host.queueing import Queueing
    from trax.records import Metadata
    from trax.records.count import Count
    from trax.records.log_line import LogLine
    from trax.records.page import Page
    from trax.settings import Settings
    from trax.store import Connection, Store


class RunKeywords(TypedDict, total=False):
    """Which runs: what is left out may be anything. `external_id` may be its beginning."""

    state: State | str | None
    train: str | None
    manifest: str | None
    group: str | None
    parent_id: int | None
    since: datetime | None
    until: datetime | None
    external_id: str | None
    admin: bool


class Executions:
    """What ran, what runs, and how it ended."""

    def __init__(self, parts: Parts, queueing: Queueing) -> None:
        self._store = parts.store
        self._lists = AskedLists(parts.store, run_pages.RUNS)
        self._live = parts.live
        self._submitters = parts.submitters
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
        before: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **wanted: Unpack[RunKeywords],
    ) -> list[Metadata]:
        """Newest first. To read on, pass the id of the last one as `before`.

        `since` and `until` are about when a run was made: from the first moment on, and before the second.
        The runs of administrative trains are left out, unless `admin` wants them or `train` names one.
        With `brief` inputs, outputs, junctions and stack traces are left out, and long reasons are cut.
        """
        return await self._lists.listed(_filter(wanted), before=before, limit=limit, brief=brief)

    async def page(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **wanted: Unpack[RunKeywords],
    ) -> Page[Metadata]:
        """The same as `list`, with the way to the pages before and after, at a bounded cost.

        Where no index helps, as for a group, it looks at the newest runs only: then `complete` is False.
        """
        found = _filter(wanted)
        return await self._lists.page(found, before=before, after=after, limit=limit, brief=brief)

    async def count(self, *, quick: bool = False, **wanted: Unpack[RunKeywords]) -> Count:
        """How many there are: exact up to ten thousand, beyond that about how many.

        A filter that no index answers, such as a group, reads all there is. A `quick` count looks at a
        bounded number of rows as a page does, and may be an estimate below ten thousand.
        """
        return await self._lists.count(_filter(wanted), quick=quick)

    async def cancel(self, ids: Iterable[int]) -> Sequence[int]:
        """Stop those of these runs that are not over; returns which.

        One that no worker has begun is cancelled at once. One in progress is asked to stop: in this process
        immediately, in another within a heartbeat.
        """
        wanted = checked_ids(ids)
        store = await self._store.opened()
        stopped = await store.call(_cancel, store, wanted, self._live.now)
        await withdraw(store, self._submitters, stopped, within=self._live.now.hand_off_timeout)
        return stopped

    async def rerun(self, metadata_id: int) -> QueuedEntry:
        """Queue the same train with the same input once more, under the same limits.

        It keeps the group, the priority, the time limit, the retry policy and the `unique` key: while another
        job has that key, its entry is returned. It is an extra run: no schedule waits for it, counts its
        failures or is put off by it.
        """
        return await self._queueing.rerun(ID("metadata_id", metadata_id))

    async def logs(
        self, metadata_id: int, *, after: int | None = None, limit: int = 100, brief: bool = False
    ) -> Sequence[LogLine]:
        """The lines that a run logged, oldest first. To read on, pass the id of the last one as `after`."""
        page = PAGE("limit", limit)
        store = await self._store.opened()
        wanted, last = ID("metadata_id", metadata_id), ID_OR_NONE("after", after)
        return await store.ask(logs.of_run, wanted, after=last, limit=page, brief=brief)


def _filter(wanted: RunKeywords) -> RunFilter:
    check_moments(since=wanted.get("since"), until=wanted.get("until"))
    check_names(**{name: wanted.get(name) for name in ("train", "manifest", "group", "external_id")})
    ID_OR_NONE("parent_id", wanted.get("parent_id"))
    said: dict[str, Any] = {**wanted, "state": checked_word(State, wanted.get("state"))}
    return RunFilter(**said)


def _cancel(connection: Connection, store: Store, ids: list[int], settings: Settings) -> list[int]:
    now = store.now(connection)
    stopped = cancel_runs(connection, ids, settings, now=now)
    note(connection, "executions.cancel", "execution", stopped, now=now, after={"asked": len(ids)})
    return stopped
