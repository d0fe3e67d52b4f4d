"""The record of an administrative cycle."""

from __future__ import annotations

import logging
from collections import defaultdict
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

from trax.engine.retry import default_policy
from trax.events import Topic
from trax.records.result import ManifestResult, ResultKind
from trax.records.retry_policy import RetryPolicy, should_give_up
from trax.records.work_queue_entry import new_external_id
from trax.schedule.decide import change_after
from trax.store import dead_letters
from trax.store.announce import announce
from trax.store.manifests import manifest_results
from trax.store.queue import requeue
from trax.store.runs import metadata

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from trax.records.metadata import ResultRow
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Train


def record_cycle(connection: Connection, train: Train[Any, Any], *, now: datetime) -> None:
    """Insert a completed run for a cycle that changed something. Idle cycles leave no record."""
    metadata.add_completed(connection, external_id=new_external_id(), train=train.name, now=now)


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
    locked = manifest_results.lock_with_dependents(
        connection, by_manifest, succeeded=succeeded, default_threshold=threshold
    )
    changes = [change_after(manifest, by_manifest[manifest.id], _random) for manifest in locked]
    manifest_results.write(connection, changes)
    if succeeded:
        manifest_results.mark_dependents_due(connection, succeeded, now=now)
    announce(connection, Topic.MANIFEST)


logger = logging.getLogger(__name__)


class RunResult(NamedTuple):
    """The result of a run: the columns of its record (`row`), and what retry policy and manifest need.

    `raised` are the class names of the error, for `give_up_on` of the stored policy. `gives_up` applies if
    there is no stored policy. `delay` is the wait before the next attempt that the run itself requested.
    """

    row: ResultRow
    external_id: str
    kind: ResultKind
    manifest_id: int | None = None
    attempt: int = 1
    raised: tuple[str, ...] = ()
    gives_up: bool = False
    delay: timedelta | None = None

    @property
    def error(self) -> str:
        return f"{self.row.failure_exception}: {self.row.failure_reason}"


def finish(
    connection: Connection, results: Sequence[RunResult], settings: Settings, *, store: Store
) -> list[RunResult]:
    """Write the results of runs that this worker still holds, and apply them; returns those results."""
    if all(result.kind is ResultKind.SUCCESS and result.manifest_id is None for result in results):
        rows = [result.row for result in results]
        done = metadata.finish_and_commit(connection, rows, now=store.statement_now(connection))
        return _select_by_id(results, done)
    now = store.now(connection)
    ours = _select_by_id(
        results,
        metadata.finish(connection, [_row_with_resume_time(result, now) for result in results], now=now),
    )
    apply_results(connection, _manifest_results(ours, now), settings, now=now)
    _requeue_interrupted(connection, ours, now)
    retry_or_dead_letter(
        connection, [result for result in ours if _is_failure_without_manifest(result)], settings, now=now
    )
    return ours


def _select_by_id(results: Sequence[RunResult], ids: set[int]) -> list[RunResult]:
    return [result for result in results if result.row.metadata_id in ids]


def retry_or_dead_letter(
    connection: Connection, failed: Sequence[RunResult], settings: Settings, *, now: datetime
) -> None:
    """Requeue the entries of failed jobs without a manifest, or write a dead letter with their input."""
    if not failed:
        return
    entries = requeue.load_by_runs(connection, (result.external_id for result in failed))
    moments: dict[str, datetime | None] = {}
    letters: list[dict[str, Any]] = []
    for result in failed:
        entry = entries.get(result.external_id)
        if entry is None:
            continue  # a run of `app.run`, without an entry: its caller gets the exception
        own = RetryPolicy.from_json(entry.retry)
        policy = own or default_policy(settings)
        is_final = should_give_up(own, result.raised, default=result.gives_up)
        if is_final or entry.attempt >= max(1, policy.max_retries):
            letters.append(_dead_letter_row(entry, result, None if is_final else policy.max_retries))
            _log_dead_letter(entry, result)
        else:
            wait = policy.wait_after(entry.attempt, random=_random.random())
            moments[result.external_id] = now + (wait if result.delay is None else result.delay)
    requeue.put_back(connection, moments, attempts=1)
    dead_letters.add(connection, letters, now=now)


def _manifest_results(results: Sequence[RunResult], now: datetime) -> list[ManifestResult]:
    return [
        ManifestResult(
            manifest_id=result.manifest_id,
            kind=result.kind,
            ended_at=now,
            attempt=result.attempt,
            error=result.error if result.kind is ResultKind.FAILURE else None,
            raised=result.raised,
            gives_up=result.gives_up,
            delay=result.delay,
            metadata_id=result.row.metadata_id,
        )
        for result in results
        if result.manifest_id is not None
    ]


def _row_with_resume_time(result: RunResult, now: datetime) -> ResultRow:
    """The columns of its record; the reason of a snoozed run also says when it runs again."""
    if result.delay is None or result.kind is not ResultKind.INTERRUPTED:
        return result.row
    reason = f"{result.row.failure_reason}; it runs again at {now + result.delay:%Y-%m-%d %H:%M:%S} UTC"
    return result.row._replace(failure_reason=reason)


def _requeue_interrupted(connection: Connection, results: Sequence[RunResult], now: datetime) -> None:
    """Put the entries of interrupted runs back without counting an attempt: a deploy is not a failure."""
    interrupted = {
        result.external_id: None if result.delay is None else now + result.delay
        for result in results
        if result.kind is ResultKind.INTERRUPTED
    }
    requeue.put_back(connection, interrupted, attempts=0)


def _is_failure_without_manifest(result: RunResult) -> bool:
    return result.kind is ResultKind.FAILURE and result.manifest_id is None


def _log_dead_letter(entry: Any, result: RunResult) -> None:
    logger.warning(
        "run %s of train %r failed and is not retried; it became a dead letter",
        result.row.metadata_id,
        entry.train,
        extra={"train": entry.train, "metadata_id": result.row.metadata_id, "attempt": entry.attempt},
    )


def _dead_letter_row(entry: Any, result: RunResult, max_retries: int | None) -> dict[str, Any]:
    """A dead letter for the entry: it failed `max_retries` times, or (None) a retry would not help."""
    times = "once" if entry.attempt == 1 else f"{entry.attempt} times"
    given_up = f"failed {times}; trying again would not help after {result.error}"
    failed = f"failed {times}, the last time with {result.error}; max_retries is {max_retries}"
    return dead_letters.build_from_entry(
        entry, given_up if max_retries is None else failed, retry_count=entry.attempt
    )
