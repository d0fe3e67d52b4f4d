"""A train's own hooks: told what happened, with the record as it stands, and never able to change it."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, assert_never

from trax.store import metadata
from trax.train import Cancelled, Done, Failed, Interrupted

if TYPE_CHECKING:
    from trax.store import Store
    from trax.train import Outcome, Train

logger = logging.getLogger(__name__)


async def call_hook(store: Store, train: Train[Any, Any], name: str, metadata_id: int, *more: Any) -> None:
    hook = getattr(train.options, name)
    if hook is None:
        return
    try:
        record = await store.ask(metadata.get, metadata_id)
        answer = hook(record, *more)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        logger.exception("train %r: its hook %s failed; the run is not affected", train.name, name)


async def tell_ending(store: Store, train: Train[Any, Any], metadata_id: int, outcome: Outcome[Any]) -> None:
    """Call the hook for how a run ended, once its ending is written."""
    match outcome:
        case Done():
            await call_hook(store, train, "on_completed", metadata_id)
        case Failed(error):
            await call_hook(store, train, "on_failed", metadata_id, error)
        case Cancelled() | Interrupted():
            await call_hook(store, train, "on_cancelled", metadata_id)
        case _:
            assert_never(outcome)
