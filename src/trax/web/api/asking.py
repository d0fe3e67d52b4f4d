"""Asking for runs, with the app's code or without it: then workers check what they are given."""

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
    """Whether trains are known here; `trax dashboard` without an app knows none."""
    return len(app.trains) > 0


async def asked_for(app: Trax, train: str, value: Any, how: QueueKeywords) -> QueuedEntry:
    if has_code(app):
        return await app.at_home(app.queue(train, value, **how))
    return await bare.queue(app.parts, train, value, how)


async def asked_again(app: Trax, metadata_id: int) -> QueuedEntry:
    """A run that is there and cannot be repeated is a conflict, and no mistake of whoever asks."""
    try:
        return await app.at_home(app.executions.rerun(metadata_id))
    except (NotFound, InvalidInput, StoreError):
        raise
    except TraxError as error:
        raise Refusal(problem(409, str(error), code="cannot_rerun")) from error
