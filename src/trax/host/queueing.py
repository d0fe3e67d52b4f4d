"""Asking for runs in the background: inputs are checked, then written to the work queue."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from trax.admin.policies import default_policy
from trax.clock import utc_now
from trax.errors import DefinitionError, NotFound, TraxError
from trax.events import Topic
from trax.host.acting import note, who_acts
from trax.host.entry import QueuedEntry
from trax.host.wishes import text_of_plain, wish_for
from trax.masking import NOT_KEPT, SECRET
from trax.queue import Wish, clamped, enqueue, enqueue_quickly
from trax.records import Metadata, State
from trax.records.audit import TARGETS_AT_MOST
from trax.records.retry_policy import RetryPolicy
from trax.records.states import Origin
from trax.store import callers, executions, manifest_groups
from trax.store.json import parsed
from trax.train import junction
from trax.train import train as train_over
from trax.train.keyring import VARIABLE
from trax.train.names import check_not_reserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from trax.host.opening import OpenStore
    from trax.host.parts import Parts
    from trax.host.wishes import ManyKeywords, QueueKeywords
    from trax.records import ManifestGroup
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.store.callers import Lent
    from trax.store.executions import Asked
    from trax.train import Hook, Train


MASKED: Final = f'{{"{SECRET}":"{NOT_KEPT}"}}'


class Queueing:
    """Writes entries for an app's trains, from async and from blocking code."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._trains = parts.trains
        self._parameters = parts.parameters
        self._wake = partial(parts.events.emit, Topic.WORK_QUEUE)
        self._live = parts.live
        self._hooks = parts.hooks
        self._waiting = parts.waiting
        self._telemetry = parts.telemetry

    async def one(self, train: Train[Any, Any] | str, value: Any, how: QueueKeywords) -> QueuedEntry:
        return (await self._add(*self._asked(train, [value], how)))[0]

    async def many(
        self, train: Train[Any, Any] | str, values: Iterable[Any], how: ManyKeywords
    ) -> list[QueuedEntry]:
        return await self._add(*self._asked(train, values, _without_key(how)))

    def one_blocking(self, train: Train[Any, Any] | str, value: Any, how: QueueKeywords) -> QueuedEntry:
        return self._add_blocking(*self._asked(train, [value], how))[0]

    def many_blocking(
        self, train: Train[Any, Any] | str, values: Iterable[Any], how: ManyKeywords
    ) -> list[QueuedEntry]:
        return self._add_blocking(*self._asked(train, values, _without_key(how)))

    async def rerun(self, metadata_id: int) -> QueuedEntry:
        """Ask for what a run was asked for: the same train and input, of its own accord and no schedule's.

        It keeps the group, the priority, the time limit, the retry policy and the unique key. Where there is
        no code, as for a command or a dashboard of its own, the workers check the input.
        """
        store = await self._store.opened()
        found = await store.ask(executions.to_rerun, metadata_id)
        if found is None:
            raise NotFound(f"there is no execution {metadata_id}")
        has_code = len(self._trains) > 0
        train = self._trains.get(found.train) if has_code else unregistered(found.train)
        text = _kept_input(metadata_id, found.input)
        if has_code:
            self._parameters.of_input(train).decode(text)
        how: QueueKeywords = {"priority": found.priority, "group": found.group, "unique": found.unique}
        settings = self._live.now
        wish = wish_for(train, [text], how, settings, origin=Origin.RERUN)
        limit = wish.timeout_seconds if found.timeout_seconds is None else found.timeout_seconds
        retry = _retry_of(found, settings) or wish.retry
        wish = replace(wish, timeout_seconds=limit, retry=retry, repeats=metadata_id)
        return (await self._add(train, wish, None))[0]

    def _asked(
        self, train: Train[Any, Any] | str, values: Iterable[Any], how: QueueKeywords
    ) -> tuple[Train[Any, Any], Wish, Lent | None]:
        """Everything that can be wrong with a call is found here, before the database is asked anything."""
        given = how.get("connection")
        lent = None if given is None else callers.checked(given)
        settings = self._live.now
        if isinstance(train, str):
            train = self._trains.get(train)
            codec = self._parameters.of_input(train)
            texts = (text_of_plain(value, train, codec, settings) for value in values)
        else:
            texts = map(self._parameters.of_registered(train).encode, values)
        return train, wish_for(train, texts, how, settings), lent

    async def _add(self, train: Train[Any, Any], wish: Wish, lent: Lent | None) -> list[QueuedEntry]:
        telemetry = self._telemetry.now
        if telemetry is None:
            return await self._added(train, wish, lent)
        with telemetry.queueing(wish) as traced:
            return await self._added(train, traced, lent)

    async def _added(self, train: Train[Any, Any], wish: Wish, lent: Lent | None) -> list[QueuedEntry]:
        for answer in _shown(self._hooks.of_queue(train), wish):
            if inspect.isawaitable(answer):
                await answer
        if not wish.inputs:
            return []
        if lent is None:
            store = await self._store.opened()
            entries = await store.call(_enqueue_in_own, store, wish)
        else:
            ours = self._store
            group = None
            if await callers.within(lent, ours.shown_address, _has_new_group, wish):
                group = await asyncio.to_thread(self._make_group, wish)
            entries = await callers.within(lent, ours.shown_address, _enqueue, ours, wish, group)
            callers.after_commit(lent, self._wake)
        return [entry.awaited_by(self._waiting) for entry in entries]

    def _add_blocking(self, train: Train[Any, Any], wish: Wish, lent: Lent | None) -> list[QueuedEntry]:
        telemetry = self._telemetry.now
        if telemetry is None:
            return self._added_blocking(train, wish, lent)
        with telemetry.queueing(wish) as traced:
            return self._added_blocking(train, traced, lent)

    def _added_blocking(self, train: Train[Any, Any], wish: Wish, lent: Lent | None) -> list[QueuedEntry]:
        if callers.is_async(lent):
            raise DefinitionError(
                f"app.sync cannot use {type(lent).__name__}; here it is `await app.queue(…)`"
            )
        for answer in _shown(self._hooks.of_queue(train), wish):
            if inspect.iscoroutine(answer):
                answer.close()
                raise DefinitionError(
                    f"train {train.name!r}: its on_queue is async, and this call is blocking"
                )
        if not wish.inputs:
            return []
        if lent is None:
            store = self._store.opened_blocking()
            entries = store.run(_enqueue_in_own, store, wish)
        else:
            ours = self._store
            is_new = callers.within_blocking(lent, ours.shown_address, _has_new_group, wish)
            group = self._make_group(wish) if is_new else None
            entries = callers.within_blocking(lent, ours.shown_address, _enqueue, ours, wish, group)
            callers.after_commit(lent, self._wake)
        return [entry.awaited_by(self._waiting) for entry in entries]

    def _make_group(self, wish: Wish) -> ManifestGroup:
        """In a transaction of our own, which is over at once: the caller's may stay open for long."""
        name = str(wish.group)
        with self._store.as_it_stands() as store:
            return store.run(lambda it: manifest_groups.named(it, [name], now=store.now(it))[name])


def _has_new_group(connection: Connection, wish: Wish) -> bool:
    return wish.group is not None and manifest_groups.is_to_be_made_before(connection, wish.group)


def _without_key(how: ManyKeywords) -> QueueKeywords:
    keyed = cast("QueueKeywords", how)
    if keyed.get("unique") is not None:
        raise DefinitionError(
            "queue_many takes no unique: one key cannot stand for many entries; queue each with its own key"
        )
    return keyed


def _shown(hooks: list[Hook], wish: Wish) -> Iterator[Any]:
    """Show each `on_queue` each run that is asked for, as the record it will have one day.

    It may change nothing, but what it raises keeps the entries from being written.
    """
    for external_id, text in wish.inputs.items() if hooks else ():
        record = Metadata(
            id=0,
            external_id=external_id,
            train=wish.train,
            state=State.PENDING,
            group=wish.group,
            priority=clamped(wish.priority),
            input=parsed(text),
            created_at=utc_now(),
        )
        yield from (hook(record) for hook in hooks)


@junction
def _unknown(value: Any) -> Any:
    """Stands for what a train does, where only its name is known."""
    return value


def unregistered(name: str) -> Train[Any, Any]:
    """A train whose code is not here: the workers have it, and check what they are given."""
    check_not_reserved(name)
    return train_over(name, _unknown)


def _retry_of(found: Asked, settings: Settings) -> str | None:
    """The policy that a run was under; a manifest says apart from it how often it is tried."""
    if found.max_retries is None:
        return found.retry
    policy = RetryPolicy.from_json(found.retry) or default_policy(settings)
    return replace(policy, max_retries=found.max_retries).to_json()


def _kept_input(metadata_id: int, text: str | None) -> str:
    if text is None:
        raise TraxError(f"execution {metadata_id} cannot be run again: its input was not saved (save_inputs)")
    if text.startswith('{"_truncated": true'):
        raise TraxError(
            f"execution {metadata_id} cannot be run again: its input was too large to be saved "
            "(max_parameter_bytes)"
        )
    if MASKED in text:
        raise TraxError(
            f"execution {metadata_id} cannot be run again: its input has a secret that was not kept, as "
            f"there was no ${VARIABLE} where it ran; queue it anew, with the secret"
        )
    return text


def _enqueue_in_own(connection: Connection, store: Store, wish: Wish) -> list[QueuedEntry]:
    """In a transaction of our own, which may be over with it, unless something else is to be written."""
    if who_acts() is not None:
        return _enqueue(connection, store, wish)
    quickly = enqueue_quickly(connection, wish, now=store.given_now(connection), record=QueuedEntry)
    return _enqueue(connection, store, wish) if quickly is None else quickly


def _enqueue(
    connection: Connection, store: Store | OpenStore, wish: Wish, group: ManifestGroup | None = None
) -> list[QueuedEntry]:
    return noted_enqueue(connection, wish, now=store.now(connection), group=group)


def noted_enqueue(
    connection: Connection, wish: Wish, *, now: datetime, group: ManifestGroup | None = None
) -> list[QueuedEntry]:
    """Write entries, and who asked for them where an operator did."""
    entries = enqueue(connection, wish, now=now, record=QueuedEntry, group=group)
    if who_acts() is not None:
        after = {"entry_ids": [entry.id for entry in entries[:TARGETS_AT_MOST]], "priority": wish.priority}
        if wish.repeats is not None:
            note(connection, "executions.rerun", "execution", [wish.repeats], now=now, after=after)
        else:
            note(connection, "trains.queue", "train", [wish.train], now=now, count=len(entries), after=after)
    return entries
