"""`app.executions`: list, cancel and rerun executions; `app.logs`: log lines of all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from trax.app.lists import RecordLists, check_filters, parse_choice
from trax.engine.actor import record_audit
from trax.engine.cancel import cancel_runs
from trax.errors import NotFound
from trax.records.listing import ChangedIds, LogFilter, RunFilter
from trax.records.states import LogLevel, State
from trax.remote.hand_over import withdraw
from trax.schedule.validate import ID, ID_OR_NONE, PAGE, check_moments, check_names, validate_ids
from trax.store.runs import metadata, run_lists, run_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from typing import Unpack

    from trax.app.queue import Enqueuer
    from trax.records import Metadata
    from trax.records.listing import Count, RecordPage
    from trax.records.metadata import LogLine
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext
    from trax.worker.entry import QueuedEntry


class ExecutionKeywords(TypedDict, total=False):
    """Filters for executions; an omitted one matches all. `external_id` may be a prefix."""

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
    """The records of all runs: past, active and pending."""

    def __init__(self, context: AppContext, enqueuer: Enqueuer) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, run_lists.RUNS)
        self._live = context.live
        self._submitters = context.submitters
        self._enqueuer = enqueuer

    async def get(self, metadata_id: int) -> Metadata:
        store = await self._store.open()
        found = await store.ask(metadata.get, ID("metadata_id", metadata_id))
        if found is None:
            raise NotFound(f"there is no execution {metadata_id}")
        return found

    async def list(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **filters: Unpack[ExecutionKeywords],
    ) -> list[Metadata]:
        """List executions, newest first. For the next page, pass the last id as `before`.

        `since` (inclusive) and `until` (exclusive) filter by creation time. Runs of administrative trains
        are omitted, unless `admin` is True or `train` names one. With `brief`, inputs, outputs, junctions
        and stack traces are omitted, and long reasons truncated.
        """
        found = _build_filter(filters)
        return await self._lists.load_list(found, before=before, after=after, limit=limit, brief=brief)

    async def page(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **filters: Unpack[ExecutionKeywords],
    ) -> RecordPage[Metadata]:
        """Like `list`, with cursors for the pages before and after, at a bounded cost.

        Where no index helps, as for a group, only the newest runs are searched: then `complete` is False.
        """
        found = _build_filter(filters)
        return await self._lists.page(found, before=before, after=after, limit=limit, brief=brief)

    async def count(self, *, quick: bool = False, **filters: Unpack[ExecutionKeywords]) -> Count:
        """Count executions: exact up to ten thousand, an estimate beyond.

        A filter without an index, such as a group, scans the whole table. A `quick` count reads a bounded
        number of rows, as a page does, and may be an estimate below ten thousand.
        """
        return await self._lists.count(_build_filter(filters), quick=quick)

    async def cancel(self, ids: Iterable[int]) -> ChangedIds:
        """Cancel these runs, where not yet ended; return the ids of those.

        A pending run is cancelled at once. A run in progress is asked to stop: in this process immediately,
        in another one within a heartbeat.
        """
        wanted = validate_ids(ids)
        store = await self._store.open()
        stopped = await store.call(_cancel, store, wanted, self._live.current)
        await withdraw(store, self._submitters, stopped, within=self._live.current.hand_over_timeout)
        return ChangedIds(stopped)

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


def _build_filter(filters: ExecutionKeywords) -> RunFilter:
    check_filters(filters, ExecutionKeywords)
    check_moments(since=filters.get("since"), until=filters.get("until"))
    check_names(**{name: filters.get(name) for name in ("train", "manifest", "group", "external_id")})
    ID_OR_NONE("parent_id", filters.get("parent_id"))
    fields: dict[str, Any] = {**filters, "state": parse_choice(State, filters.get("state"))}
    return RunFilter(**fields)


def _cancel(connection: Connection, store: Store, ids: list[int], settings: Settings) -> list[int]:
    now = store.now(connection)
    stopped = cancel_runs(connection, ids, settings, now=now)
    record_audit(
        connection, "executions.cancel", "execution", stopped, now=now, after={"requested": len(ids)}
    )
    return stopped


class LogKeywords(TypedDict, total=False):
    """Filters for log lines: of this level or higher, with this text in the message, of one run."""

    level: LogLevel | str | None
    text: str | None
    metadata_id: int | None


class AppLogs:
    """Log lines of all runs. For one run, see `app.executions.logs`."""

    def __init__(self, context: AppContext) -> None:
        self._lists = RecordLists(context.store, run_log.LINES)

    async def list(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **filters: Unpack[LogKeywords],
    ) -> list[LogLine]:
        """List lines, newest first. For the next page, pass the last id as `before`.

        With `brief`, stack traces are omitted and long messages truncated.
        """
        found = _build_log_filter(filters)
        return await self._lists.load_list(found, before=before, after=after, limit=limit, brief=brief)

    async def page(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **filters: Unpack[LogKeywords],
    ) -> RecordPage[LogLine]:
        """Like `list`, with cursors for the pages before and after, at a bounded cost.

        A search reads a bounded number of lines. If that is not all, `complete` is False, and `older`
        continues from there.
        """
        found = _build_log_filter(filters)
        return await self._lists.page(found, before=before, after=after, limit=limit, brief=brief)

    async def count(self, *, quick: bool = False, **filters: Unpack[LogKeywords]) -> Count:
        """Count lines: exact up to ten thousand, an estimate beyond."""
        return await self._lists.count(_build_log_filter(filters), quick=quick)


def _build_log_filter(filters: LogKeywords) -> LogFilter:
    check_filters(filters, LogKeywords)
    check_names(text=filters.get("text"))
    ID_OR_NONE("metadata_id", filters.get("metadata_id"))
    fields: dict[str, Any] = {**filters, "level": parse_choice(LogLevel, filters.get("level"))}
    return LogFilter(**fields)
