"""Who runs what was let in: a worker at the gate as far as it has slots, else whoever comes for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
    kinds: dict[str, _Kind] = {}
    placements: list[Admission] = []
    for entry in entries:
        kind = kinds.get(entry.train) or kinds.setdefault(entry.train, _kind(entry.train, routing, taker))
        worker_id, host = None, None
        is_wanted = groups is None or entry.group_id in groups
        if (
            taker is not None
            and kind.is_takers
            and is_wanted
            and free > 0
            and (not kind.is_cpu or cpu_free > 0)
        ):
            worker_id, host = taker.worker_id, taker.host
            free, cpu_free = free - 1, cpu_free - kind.is_cpu
        answers = entry.dead_letter_id is not None
        placements.append(Admission(entry.id, kind.submitter, kind.exempt, worker_id, host, answers))
    return placements


class _Kind(NamedTuple):
    """What is the same for all entries of a train. `is_takers`: the worker at the gate could run them."""

    submitter: str
    exempt: bool
    is_takers: bool
    is_cpu: bool


def _kind(train: str, routing: Routing, taker: Taker | None) -> _Kind:
    submitter = routing.submitter_of(train)
    is_takers = taker is not None and submitter == LOCAL and train in taker.trains
    is_cpu = taker is not None and train in taker.cpu_trains
    return _Kind(submitter, train in routing.exempt, is_takers, is_cpu)
