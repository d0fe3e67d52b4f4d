"""Results of runs, with only what matters given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.engine.finish import finish, finish_plain
from trax.records.result import ResultKind, RunResult
from trax.records.states import State
from trax.worker import worker as worker_module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

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


def refuse_results(patch: pytest.MonkeyPatch, error_for: Callable[[RunResult], Exception | None]) -> None:
    """Let workers fail to write a batch in which `error_for` returns an error for a result."""

    def check(results: Sequence[RunResult]) -> None:
        for result in results:
            if (error := error_for(result)) is not None:
                raise error

    def picky(connection: Any, results: Sequence[RunResult], *more: Any, **how: Any) -> Any:
        check(results)
        return finish(connection, results, *more, **how)

    async def picky_about_plain_ones(store: Any, results: Sequence[RunResult]) -> Any:
        check(results)
        return await finish_plain(store, results)

    patch.setattr(worker_module, "finish", picky)
    patch.setattr(worker_module, "finish_plain", picky_about_plain_ones)
