"""Enqueue and rerun jobs from the API and the dashboard, with or without the app's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.errors import InvalidInput, NotFound, StoreError, TraxError
from trax.host import bare
from trax.web.problems import Refusal, problem

if TYPE_CHECKING:
    from trax.host.app import Trax
    from trax.host.entry import QueuedEntry
    from trax.host.wishes import QueueKeywords


def has_code(app: Trax) -> bool:
    """Whether trains are registered in this process; `trax dashboard` without an app has none."""
    return len(app.trains) > 0


async def enqueue(app: Trax, train: str, value: Any, options: QueueKeywords) -> QueuedEntry:
    """Enqueue a job. Without the app's code the input is validated only by the worker."""
    if has_code(app):
        return await app.run_in_app_loop(app.queue(train, value, **options))
    return await bare.queue(app.parts, train, value, options)


async def rerun(app: Trax, metadata_id: int) -> QueuedEntry:
    """Enqueue the job of a run again; 409 if the run exists but cannot be repeated."""
    try:
        return await app.run_in_app_loop(app.executions.rerun(metadata_id))
    except (NotFound, InvalidInput, StoreError):
        raise
    except TraxError as error:
        raise Refusal(problem(409, str(error), code="cannot_rerun")) from error
