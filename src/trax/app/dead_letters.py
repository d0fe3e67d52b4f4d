"""`app.dead_letters`: list, requeue and acknowledge jobs that used up their retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trax.app.lists import RecordLists
from trax.engine.actor import record_audit
from trax.engine.dead_letters import acknowledge, requeue
from trax.errors import DefinitionError, NotFound
from trax.events import Topic
from trax.records.nouns import DEAD_LETTERS
from trax.schedule.validate import ID, PAGE, TEXT, TEXT_OR_NONE, check_names, validate_ids
from trax.store import dead_letters
from trax.store.announce import announce
from trax.store.dead_letters import LetterSelection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from trax.records import DeadLetter
    from trax.records.dead_letter import DeadLetterGroup
    from trax.records.listing import Count, RecordPage
    from trax.records.nouns import DeadLetterKeywords, LetterFilter
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext

NOUN: Final = "dead_letter"


class DeadLetters:
    """Requeue or acknowledge dead letters. Of two concurrent calls, only one resolves a letter."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, DEAD_LETTERS, dead_letters.LETTERS)

    async def requeue(
        self,
        ids: Sequence[int] | None = None,
        note: str | None = None,
        *,
        fingerprint: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Enqueue these jobs again, where still unresolved; return how many.

        Instead of ids, `fingerprint` selects all letters of one kind of failure, and `limit` the oldest of
        them: requeue one as a canary, and the rest when it succeeds.
        """
        return await self._requeue(_build_selection(ids, fingerprint, limit), note)

    async def requeue_all(self, note: str | None = None) -> int:
        return await self._requeue(LetterSelection(), note)

    async def acknowledge(
        self, ids: Sequence[int] | None = None, note: str | None = None, *, fingerprint: str | None = None
    ) -> int:
        """Resolve these without another run, where still unresolved; return how many. Requires a note."""
        if note is None:
            raise DefinitionError("acknowledge needs a note: say why no retry is needed")
        return await self._acknowledge(_build_selection(ids, fingerprint, None), note)

    async def acknowledge_all(self, note: str) -> int:
        return await self._acknowledge(LetterSelection(), note)

    async def groups(self, *, limit: int = 50, brief: bool = False) -> list[DeadLetterGroup]:
        """Unresolved letters by kind of failure, most frequent first, each with its latest letter."""
        page = PAGE("limit", limit)
        store = await self._store.open()
        return await store.ask(dead_letters.load_groups, limit=page, brief=brief)

    async def get(self, dead_letter_id: int) -> DeadLetter:
        store = await self._store.open()
        found = await store.ask(dead_letters.get, ID("dead_letter_id", dead_letter_id))
        if found is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        return found

    async def list(self, **keywords: Unpack[DeadLetterKeywords]) -> list[DeadLetter]:
        """List dead letters, newest first. For the next page, pass the last id as `before`.

        With `brief`, inputs are omitted and long reasons truncated.
        """
        return await self._lists.load_list(keywords)

    async def page(self, **keywords: Unpack[DeadLetterKeywords]) -> RecordPage[DeadLetter]:
        """Like `list`, with cursors for the pages before and after, at a bounded cost."""
        return await self._lists.page(keywords)

    async def count(self, *, quick: bool = False, **filters: Unpack[LetterFilter]) -> Count:
        """Count dead letters: exact up to ten thousand, an estimate beyond."""
        return await self._lists.count(filters, quick=quick)

    async def _requeue(self, selection: LetterSelection, note: str | None) -> int:
        TEXT_OR_NONE("note", note)
        store = await self._store.open()
        return await store.call(_requeue, store, selection, note)

    async def _acknowledge(self, selection: LetterSelection, note: str) -> int:
        TEXT("note", note)
        store = await self._store.open()
        return await store.call(_acknowledge, store, selection, note)


def _build_selection(
    ids: Sequence[int] | None, fingerprint: str | None, limit: int | None
) -> LetterSelection:
    if (ids is None) == (fingerprint is None):
        raise DefinitionError("pass either ids or a fingerprint to select dead letters")
    if limit is not None:
        PAGE("limit", limit)
    check_names(fingerprint=fingerprint)
    return LetterSelection(None if ids is None else validate_ids(ids), fingerprint, limit)


def _requeue(connection: Connection, store: Store, selection: LetterSelection, remark: str | None) -> int:
    announce(connection, Topic.MANIFEST)
    now = store.now(connection)
    resolved = requeue(connection, selection, note=remark, now=now)
    record_audit(
        connection, "dead_letters.requeue", NOUN, resolved, now=now, after=_audit_values(selection, remark)
    )
    return len(resolved)


def _acknowledge(connection: Connection, store: Store, selection: LetterSelection, remark: str) -> int:
    announce(connection, Topic.MANIFEST)
    now = store.now(connection)
    resolved = acknowledge(connection, selection, note=remark, now=now)
    record_audit(
        connection,
        "dead_letters.acknowledge",
        NOUN,
        resolved,
        now=now,
        after=_audit_values(selection, remark),
    )
    return len(resolved)


def _audit_values(selection: LetterSelection, remark: str | None) -> dict[str, Any]:
    return {"note": remark} | ({"fingerprint": selection.fingerprint} if selection.fingerprint else {})
