"""Load the full timing of a manifest, for display."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.triggers import manifest_not_found
from trax.store import manifest_looks

if TYPE_CHECKING:
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.records import Manifest
    from trax.records.when import Timing
    from trax.store import Connection, Store


async def timing_of(parts: Parts, manifest: Manifest) -> tuple[Timing, datetime]:
    """The timing, and the database time it was read at."""
    store = await parts.store.open()
    return await store.ask(_read, store, parts, manifest)


def _read(connection: Connection, store: Store, parts: Parts, manifest: Manifest) -> tuple[Timing, datetime]:
    threshold = parts.settings.default_misfire_threshold
    found = manifest_looks.load_states_unlocked(connection, [manifest.id], default_threshold=threshold)
    if not found:
        raise manifest_not_found(manifest.external_id)
    return found[0].timing, store.now(connection)
