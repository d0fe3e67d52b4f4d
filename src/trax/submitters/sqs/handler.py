"""The far side as an AWS Lambda function that SQS calls with a batch of messages."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from trax.submitters.sqs.message import taken_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from trax.host.app import Trax
    from trax.host.receiving import Receiver

    Event: TypeAlias = Mapping[str, Any]

logger = logging.getLogger(__name__)

MARGIN_SECONDS: Final = 5
"""How long before the end of its time a function begins to leave."""


def lambda_handler(app: Trax) -> Callable[[Event, Any], dict[str, Any]]:
    """A handler for an event source with `ReportBatchItemFailures`: only what was not taken up comes again.

    It returns when all its runs have ended, since a function that has returned is frozen. What would outlast
    the function is interrupted in time and goes back to the queue, at no cost to its retries.
    """

    def handle(event: Event, context: Any) -> dict[str, Any]:
        try:
            return {"batchItemFailures": asyncio.run(_handled(app, event, context))}
        finally:
            app.close()  # its connections would not outlive the freeze

    return handle


async def _handled(app: Trax, event: Event, context: Any) -> list[dict[str, str]]:
    records = event["Records"]
    async with app.receiving(concurrency=len(records) or 1) as receiver:
        failed = [one["messageId"] for one in records if not await _is_taken_up(receiver, one)]
        try:
            async with asyncio.timeout(_seconds_left(context)):
                await receiver.idle()
        except TimeoutError:
            await receiver.drain(0)
    return [{"itemIdentifier": message_id} for message_id in failed]


async def _is_taken_up(receiver: Receiver, record: Mapping[str, Any]) -> bool:
    try:
        await taken_up(receiver, record["body"])
    except Exception as reason:  # noqa: BLE001 - whatever it is, this message comes again, and the others go on
        logger.warning("message %s goes back to the queue: %s", record["messageId"], reason)
        return False
    return True


def _seconds_left(context: Any) -> float:
    return max(0.0, context.get_remaining_time_in_millis() / 1000 - MARGIN_SECONDS)
