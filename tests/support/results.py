"""Results of runs, with only what matters given."""

from __future__ import annotations

from typing import Any

from trax.records.result import ResultKind, RunResult
from trax.records.states import State

KINDS = {
    State.COMPLETED: ResultKind.SUCCESS,
    State.FAILED: ResultKind.FAILURE,
    State.CANCELLED: ResultKind.CANCELLED,
}


def run_result(metadata_id: int, state: State = State.COMPLETED, **columns: Any) -> RunResult:
    given: dict[str, Any] = {
        "external_id": f"run-{metadata_id}",
        "worker_id": None,
        "kind": KINDS[state],
    } | columns
    return RunResult(metadata_id=metadata_id, state=state, **given)
