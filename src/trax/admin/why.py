"""Why a manifest does not run, or an entry waits: in order, what holds it now first.

A manifest is asked about as the manager asks. What is found to hold it is thought away, and the question put
again, until the answer is a moment or a run. So there is no second copy of the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trax.admin.policies import rules_of
from trax.admin.triggers import unknown
from trax.admin.why_queued import Scene, stamp, why_entry, why_run
from trax.errors import NotFound
from trax.records.reason import Reason
from trax.records.standing import Standing, ToDeadLetter, ToQueue, ToRest, ToWait
from trax.schedule.decide import decide
from trax.store import manifest_looks, manifests, why, work_queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from trax.records import Manifest
    from trax.store.why import Occupant

LIFTED: Final[Mapping[str, Mapping[str, Any]]] = {
    "disabled": {"enabled": True},
    "group_disabled": {"group_enabled": True},
    "dead_letter": {
        "has_awaiting_dead_letter": False,
        "gave_up_reason": None,
        "failure_count": 0,
        "lifetime_failures": 0,
    },
    "active": {"active_runs": 0},
    "queued": {"has_queued_entry": False},
}
"""How a manifest would stand without what holds it."""


def why_of(scene: Scene, what: str | int) -> list[Reason]:
    """The reasons for a manifest, by its external id, or for an entry of the queue, by its number."""
    found = manifests.get(scene.connection, what) if isinstance(what, str) else None
    if found is not None:
        return why_manifest(scene, found)
    if isinstance(what, str) and not (what.isdecimal() and what.isascii()):
        raise unknown(what)
    entry = work_queue.get(scene.connection, int(what))
    if entry is None:
        raise NotFound(f"there is no entry {what} in the work queue, and no manifest of that name")
    return why_entry(scene, entry)


def why_manifest(scene: Scene, manifest: Manifest) -> list[Reason]:
    occupant = why.occupants(scene.connection, manifest.id)
    under_way = list(_under_way(scene, occupant))
    threshold = scene.settings.default_misfire_threshold
    [standing] = manifest_looks.glance(scene.connection, [manifest.id], default_threshold=threshold)
    schedule = list(_of_schedule(scene, manifest, standing, occupant))
    if under_way:  # what comes after it is another question; what stands against the next run is told
        schedule = [reason for reason in schedule if reason.code in LIFTED]
    first_of_each: dict[str, Reason] = {}
    for reason in (*under_way, *schedule):
        first_of_each.setdefault(reason.code, reason)
    if len(first_of_each) > 1:
        first_of_each.pop("due", None)  # it would be, if it were not for the others
    return list(first_of_each.values())


def _under_way(scene: Scene, occupant: Occupant) -> Iterator[Reason]:
    for entry_id in occupant.entry_ids[:1]:
        yield Reason("queued", f"entry {entry_id} of it is queued", ids=occupant.entry_ids)
        if entry := work_queue.get(scene.connection, entry_id):
            yield from why_entry(scene, entry)
    for metadata_id in occupant.metadata_ids[:1]:
        yield from why_run(scene, metadata_id)


def _of_schedule(
    scene: Scene, manifest: Manifest, standing: Standing, occupant: Occupant
) -> Iterator[Reason]:
    match decide(standing, rules_of(scene.settings), scene.now):
        case ToRest(reason, code):
            yield _resting(manifest, reason, code, occupant)
            if code in LIFTED:
                yield from _of_schedule(scene, manifest, standing._replace(**LIFTED[code]), occupant)
        case ToWait(until):
            yield _waiting(scene, standing, until)
        case ToDeadLetter(reason):
            yield Reason("gave_up", f"it gave up ({reason}); the next cycle writes its dead letter")
        case ToQueue():
            yield _due(scene, manifest)


def _resting(manifest: Manifest, reason: str, code: str, occupant: Occupant) -> Reason:
    match code:
        case "dead_letter":
            letters = ", ".join(map(str, occupant.dead_letter_ids))
            return Reason(code, f"dead letter {letters} awaits a person", ids=occupant.dead_letter_ids)
        case "parent" | "parent_closed" if manifest.depends_on:
            return Reason(code, f"{reason} (it depends on {manifest.depends_on!r})")
        case "group_disabled":
            return Reason(code, f"its group {manifest.group!r} is disabled")
        case _:
            return Reason(code, reason)


def _waiting(scene: Scene, standing: Standing, until: datetime) -> Reason:
    """For its moment, or for the end of what excludes it: the answer differs without the exclusions."""
    freed = standing._replace(timing=standing.timing._replace(exclusions=()))
    if decide(freed, rules_of(scene.settings), scene.now) != ToWait(until):
        return Reason("excluded", f"its exclusions keep it from running until {stamp(until)}", until)
    return Reason("waiting", f"it is next due at {stamp(until)}", until)


def _due(scene: Scene, manifest: Manifest) -> Reason:
    if not scene.settings.manifest_manager_enabled:
        return Reason("manager_off", "it is due, but the manager is off (manifest_manager_enabled)")
    look = manifest.next_due_at
    if look is None:
        return Reason("due", "it is due, but nobody looks until something happens to it; trigger it")
    if look > scene.now:
        return Reason("due", f"it is due, and looked at again at {stamp(look)}", look)
    return Reason("due", "it is due; the next cycle takes it")
