"""Why a manifest, an entry or a run does not start (`trax why`): the reasons, the current one first.

A manifest is decided by the same function as in the manager. Then the reason found is removed from its state,
and it is decided again, until the decision is a time or a run. So there is no second copy of the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trax.admin.policies import rules_of
from trax.admin.triggers import HOW_TO_RESTORE, manifest_not_found
from trax.admin.why_queued import WhyContext, format_time, why_entry, why_run
from trax.bounds import LARGEST_ID, is_id
from trax.errors import NotFound
from trax.records.reason import Reason
from trax.records.standing import ManifestState, ToDeadLetter, ToDefer, ToEnqueue, ToRest, ToWait
from trax.schedule.decide import decide
from trax.store import manifest_looks, manifests, metadata, why, work_queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from trax.records import Manifest, WorkQueueEntry
    from trax.store.why import ManifestActivity

NOUNS: Final = ("run", "entry")
MAX_ID_DIGITS: Final = len(str(LARGEST_ID))

WITHOUT_BLOCKER: Final[Mapping[str, Mapping[str, Any]]] = {
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
"""For each reason, the fields of the manifest's state without it."""


def why_of(context: WhyContext, target: str | int) -> list[Reason]:
    """The reasons for a manifest (by its external id), an entry or a run.

    An entry or a run is given by its id or by the external id that they share. An id alone is that of an
    entry, or of a run if there is no such entry; `run:7` and `entry:7` are explicit.
    """
    name = str(target)
    manifest = manifests.get(context.connection, name) if isinstance(target, str) else None
    if manifest is not None:
        return why_manifest(context, manifest)
    noun, colon, number = name.rpartition(":")
    is_number = number.isdecimal() and number.isascii() and len(number) <= MAX_ID_DIGITS
    if not (is_number and is_id(int(number)) and (not colon or noun in NOUNS)):
        number = ""
    if noun != "run" and (entry := _find_entry(context, number, name)):
        return why_entry(context, entry)
    run_id = int(number) if number and noun != "entry" else why.find_run_id(context.connection, name)
    if run_id is not None and metadata.get(context.connection, run_id) is not None:
        return why_run(context, run_id)
    if not number:
        raise manifest_not_found(name)
    raise NotFound(f"there is no {noun or 'entry, run or manifest'} {number}")


def _find_entry(context: WhyContext, number: str, name: str) -> WorkQueueEntry | None:
    entry_id = int(number) if number else why.find_entry_id(context.connection, name)
    return None if entry_id is None else work_queue.get(context.connection, entry_id)


def why_manifest(context: WhyContext, manifest: Manifest) -> list[Reason]:
    occupant = why.load_activity(context.connection, manifest.id)
    under_way = list(_active_reasons(context, occupant))
    threshold = context.settings.default_misfire_threshold
    [state] = manifest_looks.load_states_unlocked(
        context.connection, [manifest.id], default_threshold=threshold
    )
    schedule = list(_schedule_reasons(context, manifest, state, occupant))
    if under_way:  # leave out when the next run is due; keep what would block it
        schedule = [reason for reason in schedule if reason.code in (*WITHOUT_BLOCKER, "retired")]
    first_of_each: dict[str, Reason] = {}
    for reason in (*under_way, *schedule):
        first_of_each.setdefault(reason.code, reason)
    if len(first_of_each) > 1:
        first_of_each.pop("due", None)  # it is due only without the other reasons
    return list(first_of_each.values())


def _active_reasons(context: WhyContext, occupant: ManifestActivity) -> Iterator[Reason]:
    for entry_id in occupant.entry_ids[:1]:
        yield Reason("queued", f"its entry {entry_id} is queued", ids=occupant.entry_ids)
        if entry := work_queue.get(context.connection, entry_id):
            yield from why_entry(context, entry)
    for metadata_id in occupant.metadata_ids[:1]:
        yield from why_run(context, metadata_id)


def _schedule_reasons(
    context: WhyContext, manifest: Manifest, state: ManifestState, occupant: ManifestActivity
) -> Iterator[Reason]:
    match decide(state, rules_of(context.settings), context.now):
        case ToRest(reason, code):
            yield _rest_reason(manifest, reason, code, occupant)
            if code in WITHOUT_BLOCKER:
                yield from _schedule_reasons(
                    context, manifest, state._replace(**WITHOUT_BLOCKER[code]), occupant
                )
        case ToWait(until):
            yield _wait_reason(context, state, until)
        case ToDefer(reason):
            yield _broken_reason(manifest, reason)
        case ToDeadLetter(reason):
            yield Reason("gave_up", f"it gave up ({reason}); the next manager cycle writes its dead letter")
        case ToEnqueue():
            yield _due_reason(context, manifest)


def _rest_reason(manifest: Manifest, reason: str, code: str, occupant: ManifestActivity) -> Reason:
    match code:
        case "dead_letter":
            letters = ", ".join(map(str, occupant.dead_letter_ids))
            return Reason(code, f"dead letter {letters} awaits a person", ids=occupant.dead_letter_ids)
        case "parent" | "parent_closed" if manifest.depends_on:
            return Reason(code, f"{reason} (it depends on {manifest.depends_on!r})")
        case "retired" if manifest.retired_at:
            return Reason(code, f"it is retired since {format_time(manifest.retired_at)}: {HOW_TO_RESTORE}")
        case "group_disabled":
            return Reason(code, f"its group {manifest.group!r} is disabled")
        case _:
            return Reason(code, reason)


def _broken_reason(manifest: Manifest, reason: str) -> Reason:
    next_due = manifest.next_due_at
    then = f"; next check at {format_time(next_due)}" if next_due else ""
    return Reason("broken", f"this server cannot evaluate its schedule: {reason}{then}", next_due)


def _wait_reason(context: WhyContext, state: ManifestState, until: datetime) -> Reason:
    """Waiting for its due time, or for the end of an exclusion: then the decision differs without it."""
    without = state._replace(timing=state.timing._replace(exclusions=()))
    if decide(without, rules_of(context.settings), context.now) != ToWait(until):
        return Reason("excluded", f"its exclusions keep it from running until {format_time(until)}", until)
    return Reason("waiting", f"it is next due at {format_time(until)}", until)


def _due_reason(context: WhyContext, manifest: Manifest) -> Reason:
    if not context.settings.manifest_manager_enabled:
        return Reason("manager_off", "it is due, but the manifest manager is off (manifest_manager_enabled)")
    next_due = manifest.next_due_at
    if next_due is None:
        return Reason("due", "it is due, but has no next due time; the watchdog sets one within 5 min")
    if next_due > context.now:
        return Reason("due", f"it is due; next check at {format_time(next_due)}", next_due)
    return Reason("due", "it is due; the next cycle queues it")
