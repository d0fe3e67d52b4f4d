"""`app.dead_letters`: what gave up and waits for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin import resolutions
from trax.errors import NotFound
from trax.events import Topic
from trax.host.words import checked_word
from trax.records.states import DeadLetterStatus
from trax.store import dead_letters
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.host.parts import Parts
    from trax.records import DeadLetter
    from trax.store import Connection, Store


class DeadLetters:
    """Requeue them or acknowledge them. Of two who try at once, one resolves a letter and the other none."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store

    async def requeue(self, ids: Sequence[int], note: str | None = None) -> int:
        """Queue those of these that still wait again; returns how many that were."""
        return await self._requeue(list(ids), note)

    async def requeue_all(self, note: str | None = None) -> int:
        return await self._requeue(None, note)

    async def acknowledge(self, ids: Sequence[int], note: str) -> int:
        """Say that those of these that still wait are dealt with; returns how many that were."""
        return await self._acknowledge(list(ids), note)

    async def acknowledge_all(self, note: str) -> int:
        return await self._acknowledge(None, note)

    async def get(self, dead_letter_id: int) -> DeadLetter:
        store = await self._store.opened()
        found = await store.ask(dead_letters.get, dead_letter_id)
        if found is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        return found

    async def list(
        self,
        *,
        status: DeadLetterStatus | str | None = None,
        manifest: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Newest first. To read on, pass the id of the last one as `before`."""
        store = await self._store.opened()
        wanted = checked_word(DeadLetterStatus, status)
        return await store.ask(
            dead_letters.listed, status=wanted, manifest=manifest, before=before, limit=limit
        )

    async def _requeue(self, ids: list[int] | None, note: str | None) -> int:
        store = await self._store.opened()
        return await store.call(_requeue, store, ids, note)

    async def _acknowledge(self, ids: list[int] | None, note: str) -> int:
        store = await self._store.opened()
        return await store.call(_acknowledge, store, ids, note)


def _requeue(connection: Connection, store: Store, ids: list[int] | None, note: str | None) -> int:
    announce(connection, Topic.MANIFEST)
    return resolutions.requeue(connection, ids, note=note, now=store.now(connection))


def _acknowledge(connection: Connection, store: Store, ids: list[int] | None, note: str) -> int:
    announce(connection, Topic.MANIFEST)
    return resolutions.acknowledge(connection, ids, note=note, now=store.now(connection))
