"""`app.workers`: list the workers and their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from trax.errors import NotFound
from trax.schedule.validate import ID, ID_OR_NONE, PAGE
from trax.store import workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.records.listing import Count, RecordPage
    from trax.records.worker import WorkerView
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext

T = TypeVar("T")

SHOWN_JOBS: Final = 10


class Workers:
    """The processes that run jobs. A row stays until its worker stops or is declared lost."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._live = context.live

    async def list(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int | None = None,
        brief: bool = False,
        jobs: int = SHOWN_JOBS,
    ) -> list[WorkerView]:
        """List workers by id, each with its first jobs (not with `brief`). `is_lost`: its heartbeat is late.

        All of them, or at most `limit`; for the next page, pass the last id as `after`.
        """
        size = None if limit is None else PAGE("limit", limit)
        return await self._ask(workers.load_views, before, after, size, jobs, brief=brief)

    async def page(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
        jobs: int = SHOWN_JOBS,
    ) -> RecordPage[WorkerView]:
        """Like `list`, with cursors: `older` is for `before`, `newer` for `after`."""
        size = PAGE("limit", limit)
        return await self._ask(workers.page_of_views, before, after, size, jobs, brief=brief)

    async def count(self, *, quick: bool = False) -> Count:
        store = await self._store.open()
        return await store.ask(workers.WORKERS.count, None, quick=quick)

    async def _ask(
        self,
        query: Callable[..., T],
        before: int | None,
        after: int | None,
        limit: int | None,
        jobs: int,
        *,
        brief: bool,
    ) -> T:
        keywords = {
            "before": ID_OR_NONE("before", before),
            "after": ID_OR_NONE("after", after),
            "limit": limit,
            "jobs": 0 if brief else PAGE("jobs", jobs),
        }
        store = await self._store.open()
        return await store.ask(_query, store, self._live.current, query, keywords)

    async def get(self, worker_id: int, *, jobs: int = 100) -> WorkerView:
        store = await self._store.open()
        checked_id = ID("worker_id", worker_id)
        found = await store.ask(_get, store, self._live.current, checked_id, PAGE("jobs", jobs))
        if found is None:
            raise NotFound(f"there is no worker {worker_id}; it has stopped, or was declared lost")
        return found


def _query(
    connection: Connection,
    store: Store,
    settings: Settings,
    query: Callable[..., T],
    keywords: dict[str, Any],
) -> T:
    now, lost_after = store.now(connection), settings.worker_lost_after
    return query(connection, now=now, lost_after=lost_after, **keywords)


def _get(
    connection: Connection, store: Store, settings: Settings, worker_id: int, jobs: int
) -> WorkerView | None:
    now, lost_after = store.now(connection), settings.worker_lost_after
    return workers.get_view(connection, worker_id, now=now, lost_after=lost_after, jobs=jobs)
