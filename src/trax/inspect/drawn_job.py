"""What the code of trains does in a simulation: it is drawn, never executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trax.errors import RunCancelled, Snooze
from trax.train import Cancelled, Done, Failed, Interrupted, Outcome
from trax.train.outcome import describe

if TYPE_CHECKING:
    from trax.inspect.virtual_server import VirtualServer
    from trax.store.runs.claim import Claimed


class DrawnJob(NamedTuple):
    """What the code of a train does in one run: how long it takes, and what it raises."""

    seconds: float
    raised: Exception | None = None


class Workload(Protocol):
    """Draws what the code of trains does."""

    def draw(self, job: Claimed, server: VirtualServer) -> DrawnJob: ...


def outcome_of(job: Claimed, raised: Exception | None) -> Outcome[Any]:
    """The outcome of a run that raises this, as for a real run."""
    if raised is None:
        return Done(None)
    if isinstance(raised, RunCancelled):
        return Cancelled(str(raised))
    if isinstance(raised, Snooze):
        return Interrupted(str(raised), raised.delay)
    return Failed(
        raised, describe(raised, train=job.train, external_id=job.external_id, junction="simulated")
    )
