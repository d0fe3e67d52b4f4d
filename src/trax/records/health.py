"""Whether all is well, in a word and four numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trax.records.status import COUNTED_TO, Status, problems
from trax.records.worker import disagreements

FAILURES_BORNE: Final = 10
"""So many failures in an hour happen; more are worth a look."""


class Condition(StrEnum):
    """How it stands, for a monitor."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The numbers a monitor asks for. Counting stops at 10,000: `at_least` names what may be greater."""

    condition: Condition
    queue_depth: int
    in_progress: int
    failed_last_hour: int
    dead_letters: int
    at_least: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What an operator must see to, a sentence each."""


def health_of(status: Status) -> Health:
    """Degraded while a dead letter waits for a person or an entry for a worker, or after many failures.

    Also while servers of one app declare different manifests.
    """
    is_failing = status.dead_letters > 0 or status.failed_last_hour > FAILURES_BORNE
    is_degraded = is_failing or status.parked > 0 or bool(disagreements(status.servers))
    counted = {
        "queue_depth": (status.ready, status.delayed, status.parked),
        "in_progress": (status.running,),
        "failed_last_hour": (status.failed_last_hour,),
        "dead_letters": (status.dead_letters,),
    }
    return Health(
        condition=Condition.DEGRADED if is_degraded else Condition.HEALTHY,
        **{name: sum(parts) for name, parts in counted.items()},
        at_least=tuple(name for name, parts in counted.items() if max(parts) >= COUNTED_TO),
        problems=tuple(problems(status)),
    )
