"""Who runs what was let in: a worker at the gate as far as it has slots, else whoever comes for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.dispatch.routing import LOCAL
from trax.store.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.dispatch.routing import Routing
    from trax.store.claim import Claimed, Taker
    from trax.store.gate import Candidate


def placed(
    entries: Sequence[Candidate],
    routing: Routing,
    taker: Taker | None,
    *,
    taken: Sequence[Claimed] = (),
    groups: frozenset[int] | None = None,
) -> list[Admission]:
    """Give the worker what it can run, in order, until its slots are full; `taken` is in some already.

    With `groups` it gets only what is in one of them.
    """
    free = taker.slots - len(taken) if taker else 0
    cpu_free = taker.cpu_slots - sum(run.train in taker.cpu_trains for run in taken) if taker else 0
    placements: list[Admission] = []
    for entry in entries:
        submitter, worker_id, host = routing.submitter_of(entry.train), None, None
        is_wanted = groups is None or entry.group_id in groups
        if (
            taker is not None
            and free > 0
            and is_wanted
            and submitter == LOCAL
            and entry.train in taker.trains
        ):
            is_cpu = entry.train in taker.cpu_trains
            if not is_cpu or cpu_free > 0:
                worker_id, host = taker.worker_id, taker.host
                free, cpu_free = free - 1, cpu_free - is_cpu
        placements.append(
            Admission(
                entry_id=entry.id,
                submitter=submitter,
                exempt=entry.train in routing.exempt,
                worker_id=worker_id,
                host=host,
                answers_letter=entry.dead_letter_id is not None,
            )
        )
    return placements
