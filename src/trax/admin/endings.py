"""Apply run results to manifests: failure counts, next due times, and wake their dependents."""

from __future__ import annotations

from collections import defaultdict
from random import SystemRandom
from typing import TYPE_CHECKING

from trax.events import Topic
from trax.records.ended import ResultKind
from trax.schedule.ending import change_after
from trax.store import manifest_endings
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records.ended import ManifestResult
    from trax.settings import Settings
    from trax.store import Connection

_random = SystemRandom()


def apply_results(
    connection: Connection, results: Sequence[ManifestResult], settings: Settings, *, now: datetime
) -> None:
    """Update the manifests of these runs, in one batch. A deleted manifest is skipped."""
    if not results:
        return
    by_manifest: defaultdict[int, list[ManifestResult]] = defaultdict(list)
    for end in results:
        by_manifest[end.manifest_id].append(end)
    threshold = settings.default_misfire_threshold
    succeeded = {end.manifest_id for end in results if end.kind is ResultKind.SUCCESS}
    locked = manifest_endings.lock_with_dependents(
        connection, by_manifest, succeeded=succeeded, default_threshold=threshold
    )
    changes = [change_after(manifest, by_manifest[manifest.id], _random) for manifest in locked]
    manifest_endings.write(connection, changes)
    if succeeded:
        manifest_endings.mark_dependents_due(connection, succeeded, now=now)
    announce(connection, Topic.MANIFEST)
