"""When a manifest runs, in all detail: for those who show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.triggers import unknown
from trax.store import manifest_looks

if TYPE_CHECKING:
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.records import Manifest
    from trax.records.when import Timing
    from trax.store import Connection, Store


async def timing_of(parts: Parts, manifest: Manifest) -> tuple[Timing, datetime]:
    """Its timing, and the moment it was read."""
    store = await parts.store.opened()
    return await store.ask(_read, store, parts, manifest)


def _read(connection: Connection, store: Store, parts: Parts, manifest: Manifest) -> tuple[Timing, datetime]:
    threshold = parts.settings.default_misfire_threshold
    found = manifest_looks.glance(connection, [manifest.id], default_threshold=threshold)
    if not found:
        raise unknown(manifest.external_id)
    return found[0].timing, store.now(connection)
