"""Asking for runs of trains whose code is not here. The workers have it, and check what they are given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trax.errors import DefinitionError, NotFound
from trax.host.queueing import kept_input, noted_enqueue
from trax.host.wishes import wish_for
from trax.queue import Wish
from trax.records.external_id import new_external_id
from trax.records.states import Origin
from trax.store import executions
from trax.train import junction
from trax.train import train as train_over
from trax.train.names import check_not_reserved

if TYPE_CHECKING:
    from trax.host.entry import QueuedEntry
    from trax.host.parts import Parts
    from trax.host.wishes import QueueKeywords
    from trax.store import Connection, Store


async def queue(parts: Parts, train: str, value: Any, how: QueueKeywords) -> QueuedEntry:
    """Queue a train by its name, with any plain data as its input."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as wrong:
        raise DefinitionError(f"the input cannot be JSON: {wrong}") from None
    check_not_reserved(train)
    store = await parts.store.opened()
    wish = wish_for(train_over(train, _unknown), [text], how, parts.settings)
    return (await store.call(_enqueue, store, wish)).awaited_by(parts.waiting)


async def rerun(parts: Parts, metadata_id: int) -> QueuedEntry:
    """Queue what a run was asked for once more, under the timeout and the retry policy it had."""
    store = await parts.store.opened()
    found = await store.ask(executions.to_rerun, metadata_id)
    if found is None:
        raise NotFound(f"there is no execution {metadata_id}")
    check_not_reserved(found.train)
    wish = Wish(
        train=found.train,
        origin=Origin.RERUN,
        inputs={new_external_id(): kept_input(metadata_id, found.input)},
        priority=found.priority,
        group=found.group,
        timeout_seconds=found.timeout_seconds,
        retry=found.retry,
        repeats=metadata_id,
    )
    return (await store.call(_enqueue, store, wish)).awaited_by(parts.waiting)


@junction
def _unknown(value: Any) -> Any:
    """Stands for what a train does, where only its name is known."""
    return value


def _enqueue(connection: Connection, store: Store, wish: Wish) -> QueuedEntry:
    return noted_enqueue(connection, wish, now=store.now(connection))[0]
