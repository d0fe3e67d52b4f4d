"""Asking for runs in the background: inputs are checked here, then written to the work queue."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from trax.admin.policies import policy_of
from trax.clock import utc_now
from trax.errors import DefinitionError
from trax.events import Topic
from trax.queue import Wish, clamped, enqueue
from trax.records import Metadata, State
from trax.records.external_id import new_external_id
from trax.train import Retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta
    from typing import Unpack

    from trax.host.parts import Parts
    from trax.records import WorkQueueEntry
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Train, TrainOptions

In = TypeVar("In")


class QueueKeywords(TypedDict, total=False):
    """How an entry waits: `priority` and `group` replace the train's own, `delay` holds it back."""

    priority: int | None
    group: str | None
    delay: timedelta | None


class Queueing:
    """Writes entries for an app's trains, from async and from blocking code."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._parameters = parts.parameters
        self._events = parts.events
        self._settings = parts.settings

    async def add(
        self, train: Train[In, Any], inputs: Iterable[In], **how: Unpack[QueueKeywords]
    ) -> list[WorkQueueEntry]:
        wish = self._wish(train, inputs, how)
        for answer in _ask_hook(train, wish):
            if inspect.isawaitable(answer):
                await answer
        store = await self._store.opened()
        entries = await store.call(_enqueue, store, wish)
        self._events.emit(Topic.WORK_QUEUE)
        return entries

    def add_blocking(
        self, train: Train[In, Any], inputs: Iterable[In], **how: Unpack[QueueKeywords]
    ) -> list[WorkQueueEntry]:
        wish = self._wish(train, inputs, how)
        for answer in _ask_hook(train, wish):
            if inspect.iscoroutine(answer):
                answer.close()
                raise DefinitionError(
                    f"train {train.name!r}: its on_queue is async, and this call is blocking"
                )
        store = self._store.opened_blocking()
        entries = store.run(_enqueue, store, wish)
        self._events.emit(Topic.WORK_QUEUE)
        return entries

    def _wish(self, train: Train[In, Any], inputs: Iterable[In], how: QueueKeywords) -> Wish:
        codec, options = self._parameters.of_registered(train), train.options
        priority = how.get("priority")
        return Wish(
            train=train.name,
            inputs={new_external_id(): codec.encode(value) for value in inputs},
            priority=options.priority if priority is None else priority,
            group=how.get("group") or options.group,
            delay=how.get("delay"),
            timeout_seconds=options.timeout.total_seconds() if options.timeout else None,
            retry=_retry_json(options, self._settings),
        )


def _ask_hook(train: Train[Any, Any], wish: Wish) -> Iterator[Any]:
    """Show the train's `on_queue` each run that is asked for, as the record it will have one day.

    It may change nothing, but what it raises keeps the entries from being written.
    """
    hook = train.options.on_queue
    if hook is None:
        return
    for external_id, text in wish.inputs.items():
        yield hook(
            Metadata(
                id=0,
                external_id=external_id,
                train=wish.train,
                state=State.PENDING,
                group=wish.group,
                priority=clamped(wish.priority),
                input=json.loads(text),
                created_at=utc_now(),
            )
        )


def _retry_json(options: TrainOptions, settings: Settings) -> str | None:
    """The train's own policy travels with the entry; without one, the settings of the day count."""
    if options.retry is None and options.max_retries is None:
        return None
    default = Retry(
        max_retries=settings.default_max_retries,
        delay=settings.default_retry_delay,
        multiplier=settings.retry_backoff_multiplier,
        max_delay=settings.max_retry_delay,
    )
    return policy_of(options.policy(default)).to_json()


def _enqueue(connection: Connection, store: Store, wish: Wish) -> list[WorkQueueEntry]:
    return enqueue(connection, wish, now=store.now(connection))
