"""`app.dead_letters`: list, requeue and acknowledge jobs that used up their retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from trax.app.lists import RecordLists, check_filters, parse_choice
from trax.engine.actor import record_audit
from trax.engine.dead_letters import acknowledge, requeue
from trax.errors import DefinitionError, NotFound
from trax.events import Topic
from trax.records.listing import LetterFilter
from trax.records.states import DeadLetterStatus
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
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext

NOUN: Final = "dead_letter"


class DeadLetterKeywords(TypedDict, total=False):
    """Filters for dead letters; an omitted one matches all. A fingerprint is one kind of failure."""

    status: DeadLetterStatus | str | None
    manifest: str | None
    fingerprint: str | None


class DeadLetters:
    """Requeue or acknowledge dead letters. Of two concurrent calls, only one resolves a letter."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, dead_letters.LETTERS)

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

    async def list(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **filters: Unpack[DeadLetterKeywords],
    ) -> list[DeadLetter]:
        """List dead letters, newest first. For the next page, pass the last id as `before`.

        With `brief`, inputs are omitted and long reasons truncated.
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
        **filters: Unpack[DeadLetterKeywords],
    ) -> RecordPage[DeadLetter]:
        """Like `list`, with cursors for the pages before and after, at a bounded cost."""
        found = _build_filter(filters)
        return await self._lists.page(found, before=before, after=after, limit=limit, brief=brief)

    async def count(self, *, quick: bool = False, **filters: Unpack[DeadLetterKeywords]) -> Count:
        """Count dead letters: exact up to ten thousand, an estimate beyond."""
        return await self._lists.count(_build_filter(filters), quick=quick)

    async def _requeue(self, selection: LetterSelection, note: str | None) -> int:
        TEXT_OR_NONE("note", note)
        store = await self._store.open()
        return await store.call(_requeue, store, selection, note)

    async def _acknowledge(self, selection: LetterSelection, note: str) -> int:
        TEXT("note", note)
        store = await self._store.open()
        return await store.call(_acknowledge, store, selection, note)


def _build_filter(filters: DeadLetterKeywords) -> LetterFilter:
    check_filters(filters, DeadLetterKeywords)
    check_names(manifest=filters.get("manifest"), fingerprint=filters.get("fingerprint"))
    fields: dict[str, Any] = {**filters, "status": parse_choice(DeadLetterStatus, filters.get("status"))}
    return LetterFilter(**fields)


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
