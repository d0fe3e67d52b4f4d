"""`app.executions`: the record of every attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.errors import NotFound
from trax.host.words import checked_word
from trax.records.states import State
from trax.store import metadata

if TYPE_CHECKING:
    from trax.host.opening import OpenStore
    from trax.records import Metadata


class Executions:
    """What ran, what runs, and how it ended."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    async def get(self, metadata_id: int) -> Metadata:
        store = await self._store.opened()
        found = await store.ask(metadata.get, metadata_id)
        if found is None:
            raise NotFound(f"there is no execution {metadata_id}")
        return found

    async def list(
        self,
        *,
        state: State | str | None = None,
        train: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Metadata]:
        """Newest first. To read on, pass the id of the last one as `before`."""
        store = await self._store.opened()
        wanted = checked_word(State, state)
        return await store.ask(metadata.listed, state=wanted, train=train, before=before, limit=limit)
