"""`lambda_handler`: an AWS Lambda function that runs the jobs of a batch of SQS messages."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from trax.submitters.sqs.message import claim_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from trax.host.app import Trax
    from trax.host.receiving import Receiver

    Event: TypeAlias = Mapping[str, Any]

logger = logging.getLogger(__name__)

MARGIN_SECONDS: Final = 5
"""How long before its time limit a function interrupts its runs."""


def lambda_handler(app: Trax) -> Callable[[Event, Any], dict[str, Any]]:
    """A handler for an event source with `ReportBatchItemFailures`: only unclaimed messages are redelivered.

    It returns when all its runs have ended, since Lambda freezes a function that has returned. Runs that
    would exceed the time limit are interrupted and return to the queue, without counting as a retry.
    """

    def handle(event: Event, context: Any) -> dict[str, Any]:
        try:
            return {"batchItemFailures": asyncio.run(_handle_batch(app, event, context))}
        finally:
            app.close()  # connections do not survive the freeze

    return handle


async def _handle_batch(app: Trax, event: Event, context: Any) -> list[dict[str, str]]:
    records = event["Records"]
    async with app.receiver(concurrency=len(records) or 1) as receiver:
        failed = [record["messageId"] for record in records if not await _try_claim(receiver, record)]
        try:
            async with asyncio.timeout(_seconds_left(context)):
                await receiver.wait_until_idle()
        except TimeoutError:
            await receiver.drain(0)
    return [{"itemIdentifier": message_id} for message_id in failed]


async def _try_claim(receiver: Receiver, record: Mapping[str, Any]) -> bool:
    try:
        await claim_run(receiver, record["body"])
    except Exception as reason:  # noqa: BLE001 - this message is redelivered, the others continue
        logger.warning("SQS message %s returns to the queue: %s", record["messageId"], reason)
        return False
    return True


def _seconds_left(context: Any) -> float:
    return max(0.0, context.get_remaining_time_in_millis() / 1000 - MARGIN_SECONDS)
