"""Withdraw cancelled runs from submitters, so that their messages are not delivered."""

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
    """Pass these cancelled runs to each submitter that has `withdraw` and was handed them.

    The runs have ended already, so a message that is still delivered has no effect, and a submitter that
    cannot be reached is only logged.
    """
    for submitter in submitters:
        if not ids or not hasattr(submitter, "withdraw"):
            continue
        runs = await store.ask(hand_off.load_withdrawable, ids, submitter.name)
        if runs:
            batch = [Submission(**run._asdict()) for run in runs]
            await _withdraw_batch(submitter, batch, within.total_seconds())


async def _withdraw_batch(submitter: Any, batch: Sequence[Submission], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.to_thread(submitter.withdraw, batch)
    except Exception as error:  # noqa: BLE001 - user code; nothing is lost
        text = "submitter %r: %s cancelled runs could not be withdrawn: %s"
        logger.info(text, submitter.name, len(batch), error)
