"""`app.dead_letters`: what gave up and waits for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trax.admin import resolutions
from trax.errors import NotFound, TraxError
from trax.events import Topic
from trax.host.acting import note
from trax.host.checks import ID, ID_OR_NONE, PAGE, check_names, checked_ids
from trax.host.words import checked_word
from trax.records.states import DeadLetterStatus
from trax.store import dead_letters, letter_groups
from trax.store.announcing import announce
from trax.store.dead_letters import Chosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.host.parts import Parts
    from trax.records import DeadLetter
    from trax.records.dead_letter import DeadLetterGroup
    from trax.store import Connection, Store

NOUN: Final = "dead_letter"


class DeadLetters:
    """Requeue them or acknowledge them. Of two who try at once, one resolves a letter and the other none."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store

    async def requeue(
        self,
        ids: Sequence[int] | None = None,
        note: str | None = None,
        *,
        fingerprint: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Queue those of these that still wait again; returns how many that were.

        Instead of ids, a fingerprint names all letters of one kind of failure, and `limit` the oldest few of
        them: one as a canary, and when that has done well, the rest.
        """
        return await self._requeue(_chosen(ids, fingerprint, limit), note)

    async def requeue_all(self, note: str | None = None) -> int:
        return await self._requeue(Chosen(), note)

    async def acknowledge(
        self, ids: Sequence[int] | None = None, note: str | None = None, *, fingerprint: str | None = None
    ) -> int:
        """Say that those of these that still wait are dealt with, and why; returns how many that were."""
        if note is None:
            raise TraxError("acknowledge needs a note: why is there nothing to repeat?")
        return await self._acknowledge(_chosen(ids, fingerprint, None), note)

    async def acknowledge_all(self, note: str) -> int:
        return await self._acknowledge(Chosen(), note)

    async def groups(self, *, limit: int = 50, brief: bool = False) -> list[DeadLetterGroup]:
        """What waits, by kind of failure, the most frequent first: each with its latest letter."""
        page = PAGE("limit", limit)
        store = await self._store.opened()
        return await store.ask(letter_groups.listed, limit=page, brief=brief)

    async def get(self, dead_letter_id: int) -> DeadLetter:
        store = await self._store.opened()
        found = await store.ask(dead_letters.get, ID("dead_letter_id", dead_letter_id))
        if found is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        return found

    async def list(
        self,
        *,
        status: DeadLetterStatus | str | None = None,
        manifest: str | None = None,
        fingerprint: str | None = None,
        before: int | None = None,
        limit: int = 50,
        brief: bool = False,
    ) -> list[DeadLetter]:
        """Newest first. To read on, pass the id of the last one as `before`.

        With `brief` inputs are left out, and long reasons are cut: as a list shows them.
        """
        check_names(manifest=manifest, fingerprint=fingerprint)
        wanted = checked_word(DeadLetterStatus, status)
        store = await self._store.opened()
        return await store.ask(
            dead_letters.listed,
            status=wanted,
            manifest=manifest,
            fingerprint=fingerprint,
            before=ID_OR_NONE("before", before),
            limit=PAGE("limit", limit),
            brief=brief,
        )

    async def _requeue(self, chosen: Chosen, note: str | None) -> int:
        store = await self._store.opened()
        return await store.call(_requeue, store, chosen, note)

    async def _acknowledge(self, chosen: Chosen, note: str) -> int:
        store = await self._store.opened()
        return await store.call(_acknowledge, store, chosen, note)


def _chosen(ids: Sequence[int] | None, fingerprint: str | None, limit: int | None) -> Chosen:
    if (ids is None) == (fingerprint is None):
        raise TraxError("which dead letters? Name either their ids or a fingerprint")
    if limit is not None:
        PAGE("limit", limit)
    check_names(fingerprint=fingerprint)
    return Chosen(None if ids is None else checked_ids(ids), fingerprint, limit)


def _requeue(connection: Connection, store: Store, chosen: Chosen, remark: str | None) -> int:
    announce(connection, Topic.MANIFEST)
    now = store.now(connection)
    resolved = resolutions.requeue(connection, chosen, note=remark, now=now)
    note(connection, "dead_letters.requeue", NOUN, resolved, now=now, after=_after(chosen, remark))
    return len(resolved)


def _acknowledge(connection: Connection, store: Store, chosen: Chosen, remark: str) -> int:
    announce(connection, Topic.MANIFEST)
    now = store.now(connection)
    resolved = resolutions.acknowledge(connection, chosen, note=remark, now=now)
    note(connection, "dead_letters.acknowledge", NOUN, resolved, now=now, after=_after(chosen, remark))
    return len(resolved)


def _after(chosen: Chosen, remark: str | None) -> dict[str, Any]:
    return {"note": remark} | ({"fingerprint": chosen.fingerprint} if chosen.fingerprint else {})
