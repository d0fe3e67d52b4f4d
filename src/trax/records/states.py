"""States, statuses and other enums of records, and the allowed transitions. See docs/reference/states.md."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(StrEnum):
    """The state of a run."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class CancelReason(StrEnum):
    """Why a run was asked to stop."""

    REQUESTED = "requested"
    TIMEOUT = "timeout"


class QueueStatus(StrEnum):
    """The status of an entry in the work queue."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    CANCELLED = "cancelled"


class DeadLetterStatus(StrEnum):
    """The status of a dead letter."""

    AWAITING_INTERVENTION = "awaiting_intervention"
    RETRIED = "retried"
    ACKNOWLEDGED = "acknowledged"


class Origin(StrEnum):
    """Why an entry was written to the work queue."""

    SCHEDULE = "schedule"
    RETRY = "retry"
    TRIGGER = "trigger"
    REQUEUE = "requeue"
    DORMANT = "dormant"
    QUEUE = "queue"
    RERUN = "rerun"


class ScheduleType(StrEnum):
    """What makes a manifest run."""

    NONE = "none"
    CRON = "cron"
    INTERVAL = "interval"
    ONCE = "once"
    ON_DEMAND = "on_demand"
    DEPENDENT = "dependent"
    DORMANT_DEPENDENT = "dormant_dependent"


class MisfirePolicy(StrEnum):
    """What happens to occurrences that were missed."""

    FIRE_ONCE_NOW = "fire_once_now"
    DO_NOTHING = "do_nothing"
    FIRE_ALL = "fire_all"


class ManifestOrigin(StrEnum):
    """Whether a manifest is declared in code or was created at run time."""

    DECLARED = "declared"
    RUNTIME = "runtime"


class LogLevel(StrEnum):
    """The level of a captured log line."""

    TRACE = "trace"
    DEBUG = "debug"
    INFORMATION = "information"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


ACTIVE: Final = (State.PENDING, State.IN_PROGRESS)
"""The states that count against the limits."""

STATE_MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.IN_PROGRESS, State.FAILED, State.CANCELLED}),
    State.IN_PROGRESS: frozenset({State.COMPLETED, State.FAILED, State.CANCELLED}),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}

QUEUE_MOVES: Final[Mapping[QueueStatus, frozenset[QueueStatus]]] = {
    QueueStatus.QUEUED: frozenset({QueueStatus.DISPATCHED, QueueStatus.CANCELLED}),
    QueueStatus.DISPATCHED: frozenset({QueueStatus.QUEUED, QueueStatus.CANCELLED}),
    QueueStatus.CANCELLED: frozenset(),
}

DEAD_LETTER_MOVES: Final[Mapping[DeadLetterStatus, frozenset[DeadLetterStatus]]] = {
    DeadLetterStatus.AWAITING_INTERVENTION: frozenset(
        {DeadLetterStatus.RETRIED, DeadLetterStatus.ACKNOWLEDGED}
    ),
    DeadLetterStatus.RETRIED: frozenset(),
    DeadLetterStatus.ACKNOWLEDGED: frozenset(),
}
