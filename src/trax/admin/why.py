"""Why a manifest does not run, or an entry waits: in order, what holds it now first.

A manifest is asked about as the manager asks. What is found to hold it is thought away, and the question put
again, until the answer is a moment or a run. So there is no second copy of the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trax.admin.policies import rules_of
from trax.admin.triggers import BRING_BACK, unknown
from trax.admin.why_queued import Scene, stamp, why_entry, why_run
from trax.bounds import LARGEST_ID, is_id
from trax.errors import NotFound
from trax.records.reason import Reason
from trax.records.standing import Standing, ToDeadLetter, ToDefer, ToQueue, ToRest, ToWait
from trax.schedule.decide import decide
from trax.store import manifest_looks, manifests, metadata, why, work_queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from trax.records import Manifest, WorkQueueEntry
    from trax.store.why import Occupant

NOUNS: Final = ("run", "entry")
LONGEST_NUMBER: Final = len(str(LARGEST_ID))

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
    """The reasons for a manifest (its external id), an entry or a run.

    Those two have numbers, or the external id that they share. A number alone is that of an entry, and of a
    run where there is no such entry; `run:7` and `entry:7` leave no doubt.
    """
    name = str(what)
    found = manifests.get(scene.connection, name) if isinstance(what, str) else None
    if found is not None:
        return why_manifest(scene, found)
    noun, colon, number = name.rpartition(":")
    is_number = number.isdecimal() and number.isascii() and len(number) <= LONGEST_NUMBER
    if not (is_number and is_id(int(number)) and (not colon or noun in NOUNS)):
        number = ""
    if noun != "run" and (entry := _entry(scene, number, name)):
        return why_entry(scene, entry)
    run_id = int(number) if number and noun != "entry" else why.run_named(scene.connection, name)
    if run_id is not None and metadata.get(scene.connection, run_id) is not None:
        return why_run(scene, run_id)
    if not number:
        raise unknown(name)
    raise NotFound(f"there is no {noun or 'entry, run or manifest'} {number}")


def _entry(scene: Scene, number: str, name: str) -> WorkQueueEntry | None:
    entry_id = int(number) if number else why.entry_named(scene.connection, name)
    return None if entry_id is None else work_queue.get(scene.connection, entry_id)


def why_manifest(scene: Scene, manifest: Manifest) -> list[Reason]:
    occupant = why.occupants(scene.connection, manifest.id)
    under_way = list(_under_way(scene, occupant))
    threshold = scene.settings.default_misfire_threshold
    [standing] = manifest_looks.glance(scene.connection, [manifest.id], default_threshold=threshold)
    schedule = list(_of_schedule(scene, manifest, standing, occupant))
    if under_way:  # what comes after it is another question; what stands against the next run is told
        schedule = [reason for reason in schedule if reason.code in (*LIFTED, "retired")]
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
        case ToDefer(reason):
            yield _unreadable(manifest, reason)
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
        case "retired" if manifest.retired_at:
            return Reason(code, f"it is retired since {stamp(manifest.retired_at)}: {BRING_BACK}")
        case "group_disabled":
            return Reason(code, f"its group {manifest.group!r} is disabled")
        case _:
            return Reason(code, reason)


def _unreadable(manifest: Manifest, reason: str) -> Reason:
    look = manifest.next_due_at
    then = f"; it is looked at again at {stamp(look)}" if look else ""
    return Reason("broken", f"this server cannot evaluate its schedule: {reason}{then}", look)


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
        return Reason("due", "it is due, but no look is planned; the watchdog plans one within 5 min")
    if look > scene.now:
        return Reason("due", f"it is due, and looked at again at {stamp(look)}", look)
    return Reason("due", "it is due; the next cycle takes it")
