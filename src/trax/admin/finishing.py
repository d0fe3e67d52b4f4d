"""The end of runs, many at once: their records, their manifests, and what is tried again. One transaction."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from trax.admin.endings import apply_endings
from trax.admin.policies import default_policy
from trax.records.ended import EndKind, ManifestEnd
from trax.records.metadata import Ending
from trax.records.retry_policy import RetryPolicy
from trax.store import dead_letters, entry_retries, metadata

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.settings import Settings
    from trax.store import Connection

logger = logging.getLogger(__name__)

_random = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that ended: what the record says, and what it means."""

    ending: Ending
    external_id: str
    kind: EndKind
    manifest_id: int | None = None
    gives_up: bool = False


def finish(
    connection: Connection, ended: Sequence[Ended], settings: Settings, *, now: datetime
) -> list[Ended]:
    """Write the endings that are still ours to write, and what follows from them; returns those."""
    done = metadata.finish(connection, [one.ending for one in ended], now=now)
    ours = [one for one in ended if one.ending.metadata_id in done]
    for one in ended:
        if one.ending.metadata_id not in done:
            logger.warning(
                "run %s ended as %s too late: it was taken from this worker, its result is not recorded",
                one.ending.metadata_id,
                one.ending.state,
            )
    apply_endings(connection, _manifest_ends(ours, now), settings, now=now)
    _put_back_interrupted(connection, ours)
    fail_alone(connection, [one for one in ours if _is_failed_alone(one)], settings, now=now)
    return ours


def fail_alone(connection: Connection, failed: Sequence[Ended], settings: Settings, *, now: datetime) -> None:
    """What has no manifest is tried again through its own entry, or becomes a dead letter with its input."""
    if not failed:
        return
    entries = entry_retries.of_runs(connection, (one.external_id for one in failed))
    moments: dict[str, datetime | None] = {}
    letters: list[dict[str, Any]] = []
    for one in failed:
        entry = entries.get(one.external_id)
        if entry is None:
            continue  # it ran without an entry: whoever called it has the exception
        policy = RetryPolicy.from_json(entry.retry) or default_policy(settings)
        if one.gives_up or entry.attempt >= max(1, policy.max_retries):
            letters.append(_letter(entry, one, policy.max_retries))
        else:
            wait = policy.wait_after(entry.attempt, chance=_random.random())
            moments[one.external_id] = now + wait
    entry_retries.put_back(connection, moments, attempts=1)
    dead_letters.add(connection, letters, now=now)


def _manifest_ends(ended: Sequence[Ended], now: datetime) -> list[ManifestEnd]:
    return [
        ManifestEnd(manifest_id=one.manifest_id, kind=one.kind, ended_at=now, gives_up=one.gives_up)
        for one in ended
        if one.manifest_id is not None
    ]


def _put_back_interrupted(connection: Connection, ended: Sequence[Ended]) -> None:
    """An interrupted run goes back to the queue as if it had never begun: a deploy is not a failure."""
    interrupted = {one.external_id: None for one in ended if one.kind is EndKind.INTERRUPTED}
    entry_retries.put_back(connection, interrupted, attempts=0)


def _is_failed_alone(one: Ended) -> bool:
    return one.kind is EndKind.FAILURE and one.manifest_id is None


def _letter(entry: Any, one: Ended, most: int) -> dict[str, Any]:
    why = "trying again would not help" if one.gives_up else f"max_retries is {most}"
    error = f"{one.ending.failure_exception}: {one.ending.failure_reason}"
    return {
        "manifest_id": None,
        "train": entry.train,
        "group_id": entry.group_id,
        "priority": entry.priority,
        "input": entry.input,
        "reason": f"failed {entry.attempt} times, at last with {error}; {why}",
        "retry_count": entry.attempt,
    }
