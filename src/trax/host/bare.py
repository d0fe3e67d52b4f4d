"""Asking for runs of trains whose code is not here. The workers have it, and check what they are given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trax.errors import DefinitionError
from trax.host.queueing import noted_enqueue, unregistered
from trax.host.wishes import wish_for

if TYPE_CHECKING:
    from trax.host.entry import QueuedEntry
    from trax.host.parts import Parts
    from trax.host.wishes import QueueKeywords
    from trax.queue import Wish
    from trax.store import Connection, Store


async def queue(parts: Parts, train: str, value: Any, how: QueueKeywords) -> QueuedEntry:
    """Queue a train by its name, with any plain data as its input."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as wrong:
        raise DefinitionError(f"the input cannot be JSON: {wrong}") from None
    named = unregistered(train)
    store = await parts.store.opened()
    wish = wish_for(named, [text], how, parts.settings)
    return (await store.call(_enqueue, store, wish)).awaited_by(parts.waiting)


def _enqueue(connection: Connection, store: Store, wish: Wish) -> QueuedEntry:
    return noted_enqueue(connection, wish, now=store.now(connection))[0]
