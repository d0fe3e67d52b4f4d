"""Telling submitters of runs that are not wanted any more: their messages need not travel on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from trax.dispatch.submit import Submission
from trax.store import hand_off

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from trax.dispatch.submit import Submitter
    from trax.store import Store

logger = logging.getLogger(__name__)


async def withdraw(
    store: Store, submitters: Iterable[Submitter], ids: Sequence[int], *, within: timedelta
) -> None:
    """Tell each submitter that can withdraw which of these runs it was handed in vain.

    Their records are over, so a message that arrives all the same changes nothing, and neither does a
    submitter that cannot be reached.
    """
    for submitter in submitters:
        if not ids or not hasattr(submitter, "withdraw"):
            continue
        runs = await store.ask(hand_off.withdrawable, ids, submitter.name)
        if runs:
            batch = [Submission(**run._asdict()) for run in runs]
            await _told(submitter, batch, within.total_seconds())


async def _told(submitter: Any, batch: Sequence[Submission], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.to_thread(submitter.withdraw, batch)
    except Exception as error:  # noqa: BLE001 - code of others, and nothing is lost
        logger.info("submitter %r was not told of %s cancelled runs: %s", submitter.name, len(batch), error)
