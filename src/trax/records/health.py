"""Whether all is well, in a word and four numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trax.records.status import Status, problems

FAILURES_BORNE: Final = 10
"""So many failures in an hour happen; more are worth a look."""


class Condition(StrEnum):
    """How it stands, for a monitor."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The numbers a monitor asks for; none is counted beyond 10,000."""

    condition: Condition
    queue_depth: int
    in_progress: int
    failed_last_hour: int
    dead_letters: int
    problems: tuple[str, ...] = ()
    """What an operator must see to, a sentence each."""


def health_of(status: Status) -> Health:
    """Degraded while a dead letter waits for a person, or when more than a few runs have failed lately."""
    is_degraded = status.dead_letters > 0 or status.failed_last_hour > FAILURES_BORNE
    return Health(
        condition=Condition.DEGRADED if is_degraded else Condition.HEALTHY,
        queue_depth=status.ready + status.delayed,
        in_progress=status.running,
        failed_last_hour=status.failed_last_hour,
        dead_letters=status.dead_letters,
        problems=tuple(problems(status)),
    )
