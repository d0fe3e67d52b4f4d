"""The end of runs, written to their manifests and told to whoever depends on them: one step a batch."""

from __future__ import annotations

from collections import defaultdict
from random import SystemRandom
from typing import TYPE_CHECKING

from trax.events import Topic
from trax.records.ended import EndKind
from trax.schedule.ending import change_after
from trax.store import manifest_endings
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records.ended import ManifestEnd
    from trax.settings import Settings
    from trax.store import Connection

_random = SystemRandom()


def apply_endings(
    connection: Connection, ends: Sequence[ManifestEnd], settings: Settings, *, now: datetime
) -> None:
    """Write what these runs mean for their manifests. A manifest deleted meanwhile needs nothing."""
    if not ends:
        return
    by_manifest: defaultdict[int, list[ManifestEnd]] = defaultdict(list)
    for end in ends:
        by_manifest[end.manifest_id].append(end)
    threshold = settings.default_misfire_threshold
    succeeded = {end.manifest_id for end in ends if end.kind is EndKind.SUCCESS}
    held = manifest_endings.hold(connection, by_manifest, succeeded=succeeded, default_threshold=threshold)
    changes = [change_after(manifest, by_manifest[manifest.id], _random) for manifest in held]
    manifest_endings.write(connection, changes)
    if succeeded:
        manifest_endings.wake_dependents(connection, succeeded, now=now)
    announce(connection, Topic.MANIFEST)
