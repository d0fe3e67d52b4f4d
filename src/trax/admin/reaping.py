"""Runs that were failed from outside: what that means for their manifests, and for jobs that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.admin.endings import apply_endings
from trax.admin.finishing import Ended, fail_alone
from trax.records.ended import EndKind, ManifestEnd
from trax.records.metadata import Ending
from trax.records.states import State
from trax.store.metadata_sweeps import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records.worker import Watch
    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.metadata_sweeps import Swept

WORKER_LOST: Final = Failure("rescue_lost_workers", "WorkerLost", "its worker has stopped beating")


def may_judge(watch: Watch | None, settings: Settings, now: datetime) -> bool:
    """Whether silence counts against anybody: not what the judge shared, an outage, a lock or a pause.

    After a gap everybody has a full period to beat before anybody is declared lost.
    """
    return watch is None or watch.has_lasted(settings.worker_lost_after, now)


def count_as_failures(
    connection: Connection, swept: Sequence[Swept], settings: Settings, *, now: datetime
) -> None:
    """Let the retry policy go on from here: it makes no difference who found out that a run failed."""
    ends = [
        ManifestEnd(
            manifest_id=run.manifest_id,
            kind=EndKind.FAILURE,
            ended_at=now,
            error=f"{run.exception}: {run.reason}",
            metadata_id=run.metadata_id,
        )
        for run in swept
        if run.manifest_id is not None
    ]
    apply_endings(connection, ends, settings, now=now)
    fail_alone(connection, [_ended(run) for run in swept if run.manifest_id is None], settings, now=now)


def _ended(run: Swept) -> Ended:
    ending = Ending(
        metadata_id=run.metadata_id,
        worker_id=None,
        state=State.FAILED,
        failure_exception=run.exception,
        failure_reason=run.reason,
    )
    return Ended(ending=ending, external_id=run.external_id, kind=EndKind.FAILURE)
