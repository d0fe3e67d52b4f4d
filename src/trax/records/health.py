"""The health check: a condition and four numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trax.records.status import COUNT_LIMIT, Status, problems
from trax.records.worker import declaration_conflicts

MAX_FAILURES_PER_HOUR: Final = 10
"""More failures in an hour than this make the condition degraded."""


class Condition(StrEnum):
    """The overall condition."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The numbers for a monitor. Counting stops at 10,000: `at_least` names counts that may be greater."""

    condition: Condition
    queue_depth: int
    in_progress: int
    failed_last_hour: int
    dead_letters: int
    at_least: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """The problems that an operator must solve, one sentence each."""


def health_of(status: Status) -> Health:
    """Degraded with open dead letters, with parked entries, or after many failures in the last hour.

    Also while servers of one app declare different manifests.
    """
    is_failing = status.dead_letters > 0 or status.failed_last_hour > MAX_FAILURES_PER_HOUR
    is_degraded = is_failing or status.parked > 0 or bool(declaration_conflicts(status.servers))
    counted = {
        "queue_depth": (status.ready, status.delayed, status.parked),
        "in_progress": (status.running,),
        "failed_last_hour": (status.failed_last_hour,),
        "dead_letters": (status.dead_letters,),
    }
    return Health(
        condition=Condition.DEGRADED if is_degraded else Condition.HEALTHY,
        **{name: sum(parts) for name, parts in counted.items()},
        at_least=tuple(name for name, parts in counted.items() if max(parts) >= COUNT_LIMIT),
        problems=tuple(problems(status)),
    )
