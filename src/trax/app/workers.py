"""`app.workers`: list the workers and their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trax.errors import NotFound
from trax.schedule.validate import ID, ID_OR_NONE, PAGE
from trax.store import workers

if TYPE_CHECKING:
    from trax.records.worker import WorkerView
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.worker.parts import Parts

SHOWN_JOBS: Final = 10


class Workers:
    """The processes that run jobs. A row stays until its worker stops or is declared lost."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._live = parts.live

    async def list(
        self, *, jobs: int = SHOWN_JOBS, after: int | None = None, limit: int | None = None
    ) -> list[WorkerView]:
        """All workers, each with its first jobs. `is_lost`: its heartbeat is late.

        At most `limit`; to read on, pass the id of the last one as `after`.
        """
        arguments = {
            "jobs": PAGE("jobs", jobs),
            "after": ID_OR_NONE("after", after) or 0,
            "limit": None if limit is None else PAGE("limit", limit),
        }
        store = await self._store.open()
        return await store.ask(_load_list, store, self._live.current, arguments)

    async def get(self, worker_id: int, *, jobs: int = 100) -> WorkerView:
        store = await self._store.open()
        checked_id = ID("worker_id", worker_id)
        found = await store.ask(_get, store, self._live.current, checked_id, PAGE("jobs", jobs))
        if found is None:
            raise NotFound(f"there is no worker {worker_id}; it has stopped, or was declared lost")
        return found


def _load_list(
    connection: Connection, store: Store, settings: Settings, filters: dict[str, Any]
) -> list[WorkerView]:
    now, lost_after = store.now(connection), settings.worker_lost_after
    return workers.load_views(connection, now=now, lost_after=lost_after, **filters)


def _get(
    connection: Connection, store: Store, settings: Settings, worker_id: int, jobs: int
) -> WorkerView | None:
    now, lost_after = store.now(connection), settings.worker_lost_after
    return workers.get_view(connection, worker_id, now=now, lost_after=lost_after, jobs=jobs)
