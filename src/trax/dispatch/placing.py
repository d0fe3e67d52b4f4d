"""Build admissions: assign entries to the worker of this cycle while it has free slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trax.dispatch.routing import LOCAL
from trax.store.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.dispatch.routing import Routing
    from trax.store.claim import Claimed, ClaimRequest
    from trax.store.gate import Candidate


def build_admissions(
    entries: Sequence[Candidate],
    routing: Routing,
    claim_request: ClaimRequest | None,
    *,
    claimed: Sequence[Claimed] = (),
    groups: frozenset[int] | None = None,
) -> list[Admission]:
    """Assign entries to the worker, in order, until its slots are full; `claimed` are runs it has already.

    With `groups` it gets only entries of these groups. Any worker may claim the entries that are not
    assigned.
    """
    free = claim_request.slots - len(claimed) if claim_request else 0
    cpu_free = (
        claim_request.cpu_slots - sum(run.train in claim_request.cpu_trains for run in claimed)
        if claim_request
        else 0
    )
    kinds: dict[str, _TrainPlacement] = {}
    placements: list[Admission] = []
    for entry in entries:
        kind = kinds.get(entry.train) or kinds.setdefault(
            entry.train, _train_placement(entry.train, routing, claim_request)
        )
        worker_id, host = None, None
        is_wanted = groups is None or entry.group_id in groups
        if (
            claim_request is not None
            and kind.fits_worker
            and is_wanted
            and free > 0
            and (not kind.is_cpu or cpu_free > 0)
        ):
            worker_id, host = claim_request.worker_id, claim_request.host
            free, cpu_free = free - 1, cpu_free - kind.is_cpu
        answers = entry.dead_letter_id is not None
        placements.append(Admission(entry.id, kind.submitter, kind.exempt, worker_id, host, answers))
    return placements


class _TrainPlacement(NamedTuple):
    """What all entries of a train have in common. `fits_worker`: the worker could run them."""

    submitter: str
    exempt: bool
    fits_worker: bool
    is_cpu: bool


def _train_placement(train: str, routing: Routing, claim_request: ClaimRequest | None) -> _TrainPlacement:
    submitter = routing.submitter_of(train)
    is_takers = claim_request is not None and submitter == LOCAL and train in claim_request.trains
    is_cpu = claim_request is not None and train in claim_request.cpu_trains
    return _TrainPlacement(submitter, train in routing.exempt, is_takers, is_cpu)
