"""`app.executions`: list, cancel and rerun executions; `app.logs`: log lines of all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.app.lists import RecordLists
from trax.engine.actor import record_audit
from trax.engine.cancel import cancel_runs
from trax.errors import NotFound
from trax.records.nouns import EXECUTIONS, LOGS
from trax.remote.hand_over import withdraw
from trax.schedule.validate import ID, ID_OR_NONE, PAGE, validate_ids
from trax.store.runs import metadata, run_lists, run_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    from trax.app.queue import Enqueuer
    from trax.records import Metadata
    from trax.records.listing import Count, RecordPage
    from trax.records.metadata import LogLine
    from trax.records.nouns import ExecutionKeywords, LogFilter, LogKeywords, RunFilter
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext
    from trax.worker.entry import QueuedEntry


class Executions:
    """The records of all runs: past, active and pending."""

    def __init__(self, context: AppContext, enqueuer: Enqueuer) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, EXECUTIONS, run_lists.RUNS)
        self._live = context.live
        self._submitters = context.submitters
        self._enqueuer = enqueuer

    async def get(self, metadata_id: int) -> Metadata:
        store = await self._store.open()
        found = await store.ask(metadata.get, ID("metadata_id", metadata_id))
        if found is None:
            raise NotFound(f"there is no execution {metadata_id}")
        return found

    async def list(self, **keywords: Unpack[ExecutionKeywords]) -> list[Metadata]:
        """List executions, newest first. For the next page, pass the last id as `before`.

        `since` (inclusive) and `until` (exclusive) filter by creation time. Runs of administrative trains
        are omitted, unless `admin` is True or `train` names one. With `brief`, inputs, outputs, junctions
        and stack traces are omitted, and long reasons truncated.
        """
        return await self._lists.load_list(keywords)

    async def page(self, **keywords: Unpack[ExecutionKeywords]) -> RecordPage[Metadata]:
        """Like `list`, with cursors for the pages before and after, at a bounded cost.

        Where no index helps, as for a group, only the newest runs are searched: then `complete` is False.
        """
        return await self._lists.page(keywords)

    async def count(self, *, quick: bool = False, **filters: Unpack[RunFilter]) -> Count:
        """Count executions: exact up to ten thousand, an estimate beyond.

        A filter without an index, such as a group, scans the whole table. A `quick` count reads a bounded
        number of rows, as a page does, and may be an estimate below ten thousand.
        """
        return await self._lists.count(filters, quick=quick)

    async def cancel(self, ids: Iterable[int]) -> list[int]:
        """Cancel these runs, where not yet ended; return the ids of those.

        A pending run is cancelled at once. A run in progress is asked to stop: in this process immediately,
        in another one within a heartbeat.
        """
        wanted = validate_ids(ids)
        store = await self._store.open()
        stopped = await store.call(_cancel, store, wanted, self._live.current)
        await withdraw(store, self._submitters, stopped, within=self._live.current.hand_over_timeout)
        return sorted(stopped)

    async def rerun(self, metadata_id: int) -> QueuedEntry:
        """Enqueue the same train with the same input again, under the same limits.

        Group, priority, timeout, retry policy and `unique` key are kept: while another job has that key, its
        entry is returned. The run is extra: it does not delay the schedule, and its failures are not
        counted there.
        """
        return await self._enqueuer.rerun(ID("metadata_id", metadata_id))

    async def logs(
        self,
        metadata_id: int,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 100,
        brief: bool = False,
    ) -> Sequence[LogLine]:
        """The log lines of a run, oldest first.

        For the next page, pass the last id as `after`; for the page before, the first id as `before`.
        """
        page = PAGE("limit", limit)
        store = await self._store.open()
        wanted = ID("metadata_id", metadata_id)
        cursors = {"before": ID_OR_NONE("before", before), "after": ID_OR_NONE("after", after)}
        lines = await store.ask(run_log.load_by_run, wanted, limit=page, brief=brief, **cursors)
        if not lines:
            await self.get(wanted)  # raises NotFound
        return lines


def _cancel(connection: Connection, store: Store, ids: list[int], settings: Settings) -> list[int]:
    now = store.now(connection)
    stopped = cancel_runs(connection, ids, settings, now=now)
    record_audit(
        connection, "executions.cancel", "execution", stopped, now=now, after={"requested": len(ids)}
    )
    return stopped


class AppLogs:
    """Log lines of all runs. For one run, see `app.executions.logs`."""

    def __init__(self, context: AppContext) -> None:
        self._lists = RecordLists(context.store, LOGS, run_log.LINES)

    async def list(self, **keywords: Unpack[LogKeywords]) -> list[LogLine]:
        """List lines, newest first. For the next page, pass the last id as `before`.

        With `brief`, stack traces are omitted and long messages truncated.
        """
        return await self._lists.load_list(keywords)

    async def page(self, **keywords: Unpack[LogKeywords]) -> RecordPage[LogLine]:
        """Like `list`, with cursors for the pages before and after, at a bounded cost.

        A search reads a bounded number of lines. If that is not all, `complete` is False, and `older`
        continues from there.
        """
        return await self._lists.page(keywords)

    async def count(self, *, quick: bool = False, **filters: Unpack[LogFilter]) -> Count:
        """Count lines: exact up to ten thousand, an estimate beyond."""
        return await self._lists.count(filters, quick=quick)
