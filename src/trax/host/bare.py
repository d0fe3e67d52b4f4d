"""Enqueue a train by name in a process without its code. The workers validate the input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trax.errors import DefinitionError
from trax.host.queueing import enqueue_with_audit, placeholder_train
from trax.host.wishes import build_request

if TYPE_CHECKING:
    from trax.host.entry import QueuedEntry
    from trax.host.parts import Parts
    from trax.host.wishes import QueueKeywords
    from trax.queue import EnqueueRequest
    from trax.store import Connection, Store


async def queue(parts: Parts, train: str, value: Any, options: QueueKeywords) -> QueuedEntry:
    """Enqueue a train by name, with plain data as its input."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the input cannot be encoded as JSON: {error}") from None
    unregistered_train = placeholder_train(train)
    store = await parts.store.open()
    request = build_request(unregistered_train, [text], options, parts.settings)
    return (await store.call(_enqueue_unchecked, store, request)).with_wait_function(parts.entry_waiter)


def _enqueue_unchecked(connection: Connection, store: Store, request: EnqueueRequest) -> QueuedEntry:
    return enqueue_with_audit(connection, request, now=store.now(connection))[0]
