"""Write the results of runs, and what follows from them: a retry, a dead letter, a change of the manifest."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from trax.engine.retry import default_policy, jitter
from trax.errors import count_times
from trax.events import Topic
from trax.records.manifest import RetryPolicy, should_give_up
from trax.records.result import ResultKind
from trax.records.work_queue_entry import new_external_id
from trax.schedule.decide import change_after
from trax.store import dead_letters
from trax.store.announce import announce
from trax.store.manifests import manifest_results
from trax.store.queue import requeue
from trax.store.runs import metadata

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records.result import RunResult
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Train

logger = logging.getLogger(__name__)


def finish(
    connection: Connection, results: Sequence[RunResult], settings: Settings, *, store: Store
) -> Sequence[RunResult]:
    """Write the results of runs that this worker still holds, and apply them; returns those results."""
    if is_plain(results):
        done = metadata.finish_and_commit(connection, results, now=store.statement_now())
        return select_by_id(results, done)
    now = store.now(connection)
    rows = [_add_resume_time(result, now) for result in results]
    applied = select_by_id(results, metadata.finish(connection, rows, now=now))
    apply_results(connection, applied, settings, now=now)
    return applied


async def finish_plain(store: Store, results: Sequence[RunResult]) -> Sequence[RunResult]:
    """The same for plain results, in one round trip."""
    statement = metadata.finish_statement(store.dialect_name, results, now=store.statement_now())
    [rows] = await store.call_together(statement)
    return select_by_id(results, metadata.parse_finished_ids(rows))


def is_plain(results: Sequence[RunResult]) -> bool:
    """Whether nothing follows from the results: all are successes of jobs without a manifest."""
    success = ResultKind.SUCCESS
    return all(result.kind is success and result.manifest_id is None for result in results)


def apply_results(
    connection: Connection, results: Sequence[RunResult], settings: Settings, *, now: datetime
) -> None:
    """Update the manifests of these runs, and queue again what is retried or was interrupted."""
    _update_manifests(connection, results, settings, now)
    _requeue_interrupted(connection, results, now)
    _retry_or_dead_letter(
        connection, [result for result in results if _is_failure_without_manifest(result)], settings, now
    )


def record_cycle(connection: Connection, train: Train[Any, Any], *, now: datetime) -> None:
    """Insert a completed run for a cycle that changed something. Idle cycles leave no record."""
    metadata.add_completed(connection, external_id=new_external_id(), train=train.name, now=now)


def select_by_id(results: Sequence[RunResult], ids: set[int]) -> Sequence[RunResult]:
    """Those among the results whose runs have these ids."""
    if len(ids) == len(results):
        return results
    return [result for result in results if result.metadata_id in ids]


def _add_resume_time(result: RunResult, now: datetime) -> RunResult:
    """The reason of a snoozed run also says when it runs again."""
    if result.delay is None or result.kind is not ResultKind.INTERRUPTED:
        return result
    reason = f"{result.failure_reason}; it runs again at {now + result.delay:%Y-%m-%d %H:%M:%S} UTC"
    return result._replace(failure_reason=reason)


def _update_manifests(
    connection: Connection, results: Sequence[RunResult], settings: Settings, now: datetime
) -> None:
    """Update the manifests of these runs, in one batch. A deleted manifest is skipped."""
    by_manifest: defaultdict[int, list[RunResult]] = defaultdict(list)
    succeeded: set[int] = set()
    for result in results:
        if result.manifest_id is not None:
            by_manifest[result.manifest_id].append(result)
            if result.kind is ResultKind.SUCCESS:
                succeeded.add(result.manifest_id)
    if not by_manifest:
        return
    locked = manifest_results.lock_with_dependents(
        connection, by_manifest, succeeded=succeeded, default_threshold=settings.default_misfire_threshold
    )
    changes = [change_after(manifest, by_manifest[manifest.id], now, jitter()) for manifest in locked]
    manifest_results.write(connection, changes)
    if succeeded:
        manifest_results.mark_dependents_due(connection, succeeded, now=now)
    announce(connection, Topic.MANIFEST)


def _requeue_interrupted(connection: Connection, results: Sequence[RunResult], now: datetime) -> None:
    """Put the entries of interrupted runs back without counting an attempt: a deploy is not a failure."""
    interrupted = {
        result.metadata_id: None if result.delay is None else now + result.delay
        for result in results
        if result.kind is ResultKind.INTERRUPTED
    }
    if interrupted:
        requeue.put_back(connection, interrupted, attempts=0)


def _is_failure_without_manifest(result: RunResult) -> bool:
    return result.kind is ResultKind.FAILURE and result.manifest_id is None


def _retry_or_dead_letter(
    connection: Connection, failed: Sequence[RunResult], settings: Settings, now: datetime
) -> None:
    """Requeue the entries of failed jobs without a manifest, or write a dead letter with their input."""
    if not failed:
        return
    entries = requeue.load_by_runs(connection, (result.metadata_id for result in failed))
    moments: dict[int, datetime | None] = {}
    letters: list[dict[str, Any]] = []
    for result in failed:
        entry = entries.get(result.metadata_id)
        if entry is None:
            continue  # a run of `app.run`, without an entry: its caller gets the exception
        own = RetryPolicy.from_json(entry.retry)
        policy = own or default_policy(settings)
        is_final = should_give_up(own, result.raised, default=result.gives_up)
        if is_final or entry.attempt >= max(1, policy.max_attempts):
            letters.append(_dead_letter_row(entry, result, None if is_final else policy.max_attempts))
            _log_dead_letter(entry, result)
        else:
            wait = policy.wait_after(entry.attempt, random=jitter().random())
            moments[result.metadata_id] = now + (wait if result.delay is None else result.delay)
    requeue.put_back(connection, moments, attempts=1)
    dead_letters.add(connection, letters, now=now)


def _log_dead_letter(entry: Any, result: RunResult) -> None:
    logger.warning(
        "run %s of train %r failed and is not retried; it became a dead letter",
        result.metadata_id,
        entry.train,
        extra={"train": entry.train, "metadata_id": result.metadata_id, "attempt": entry.attempt},
    )


def _dead_letter_row(entry: Any, result: RunResult, max_attempts: int | None) -> dict[str, Any]:
    """A dead letter for the entry: it failed `max_attempts` times, or (None) a retry would not help."""
    times = count_times(entry.attempt)
    given_up = f"failed {times}; it is not retried after {result.error}"
    failed = f"failed {times}, the last time with {result.error}; max_attempts is {max_attempts}"
    return dead_letters.build_from_entry(
        entry, given_up if max_attempts is None else failed, retry_count=entry.attempt
    )
