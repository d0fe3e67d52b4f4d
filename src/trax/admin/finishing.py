"""The end of runs, many at once: their records, their manifests, and what is tried again. One transaction."""

from __future__ import annotations

import logging
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

from trax.admin.endings import apply_endings
from trax.admin.policies import default_policy
from trax.records.ended import EndKind, ManifestEnd
from trax.records.retry_policy import RetryPolicy, gives_up
from trax.store import dead_letters, entry_retries, metadata

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from trax.records.metadata import Ending
    from trax.settings import Settings
    from trax.store import Connection, Store

logger = logging.getLogger(__name__)

_random = SystemRandom()


class Ended(NamedTuple):
    """A run that ended: what the record says, and what it means.

    `raised` are the names of the error's classes, for the stored policy that says whether trying again would
    help. `gives_up` is what counts where there is none. `delay` is the wait the run asked for itself.
    """

    ending: Ending
    external_id: str
    kind: EndKind
    manifest_id: int | None = None
    attempt: int = 1
    raised: tuple[str, ...] = ()
    gives_up: bool = False
    delay: timedelta | None = None

    @property
    def error(self) -> str:
        return f"{self.ending.failure_exception}: {self.ending.failure_reason}"


def finish(
    connection: Connection, ended: Sequence[Ended], settings: Settings, *, store: Store
) -> list[Ended]:
    """Write the endings that are still ours to write, and what follows from them; returns those."""
    if all(one.kind is EndKind.SUCCESS and one.manifest_id is None for one in ended):
        endings = [one.ending for one in ended]
        done = metadata.finish_and_commit(connection, endings, now=store.given_now(connection))
        return _ours(ended, done)
    now = store.now(connection)
    ours = _ours(ended, metadata.finish(connection, [_dated(one, now) for one in ended], now=now))
    apply_endings(connection, _manifest_ends(ours, now), settings, now=now)
    _put_back_interrupted(connection, ours, now)
    fail_alone(connection, [one for one in ours if _is_failed_alone(one)], settings, now=now)
    return ours


def _ours(ended: Sequence[Ended], done: set[int]) -> list[Ended]:
    return [one for one in ended if one.ending.metadata_id in done]


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
        own = RetryPolicy.from_json(entry.retry)
        policy = own or default_policy(settings)
        is_over = gives_up(own, one.raised, otherwise=one.gives_up)
        if is_over or entry.attempt >= max(1, policy.max_retries):
            letters.append(_letter(entry, one, None if is_over else policy.max_retries))
            _warn(entry, one)
        else:
            wait = policy.wait_after(entry.attempt, chance=_random.random())
            moments[one.external_id] = now + (wait if one.delay is None else one.delay)
    entry_retries.put_back(connection, moments, attempts=1)
    dead_letters.add(connection, letters, now=now)


def _manifest_ends(ended: Sequence[Ended], now: datetime) -> list[ManifestEnd]:
    return [
        ManifestEnd(
            manifest_id=one.manifest_id,
            kind=one.kind,
            ended_at=now,
            attempt=one.attempt,
            error=one.error if one.kind is EndKind.FAILURE else None,
            raised=one.raised,
            gives_up=one.gives_up,
            delay=one.delay,
            metadata_id=one.ending.metadata_id,
        )
        for one in ended
        if one.manifest_id is not None
    ]


def _dated(one: Ended, now: datetime) -> Ending:
    """What the record says; of a run that was put off, also until when."""
    if one.delay is None or one.kind is not EndKind.INTERRUPTED:
        return one.ending
    reason = f"{one.ending.failure_reason}; it runs again at {now + one.delay:%Y-%m-%d %H:%M:%S} UTC"
    return one.ending._replace(failure_reason=reason)


def _put_back_interrupted(connection: Connection, ended: Sequence[Ended], now: datetime) -> None:
    """An interrupted run goes back to the queue as if it had never begun: a deploy is not a failure."""
    interrupted = {
        one.external_id: None if one.delay is None else now + one.delay
        for one in ended
        if one.kind is EndKind.INTERRUPTED
    }
    entry_retries.put_back(connection, interrupted, attempts=0)


def _is_failed_alone(one: Ended) -> bool:
    return one.kind is EndKind.FAILURE and one.manifest_id is None


def _warn(entry: Any, one: Ended) -> None:
    logger.warning(
        "run %s of train %r gave up: a dead letter awaits a person",
        one.ending.metadata_id,
        entry.train,
        extra={"train": entry.train, "metadata_id": one.ending.metadata_id, "attempt": entry.attempt},
    )


def _letter(entry: Any, one: Ended, most: int | None) -> dict[str, Any]:
    """What gave up: it failed as often as it may (`most`), or (None) trying again would not help."""
    times = "once" if entry.attempt == 1 else f"{entry.attempt} times"
    given_up = f"failed {times}; trying again would not help after {one.error}"
    failed = f"failed {times}, the last time with {one.error}; max_retries is {most}"
    return dead_letters.of_entry(entry, given_up if most is None else failed, retry_count=entry.attempt)
