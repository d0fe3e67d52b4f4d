"""The worker side of SQS: `SqsConsumer`, a process, and `lambda_handler`, an AWS Lambda function."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from trax.errors import StoreError, TraxError
from trax.remote.sqs.workers import MAX_BATCH, claim_run, sqs_client
from trax.worker.loop import Loop, StopSignals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from trax.remote.receiver import Receiver, ReceivingApp


if TYPE_CHECKING:
    Event: TypeAlias = Mapping[str, Any]

logger = logging.getLogger(__name__)

MARGIN_SECONDS: Final = 5

"""How long before its time limit a function interrupts its runs."""


if TYPE_CHECKING:
    Message: TypeAlias = Mapping[str, Any]


LONG_POLL: Final = timedelta(seconds=10)

RECHECK_SECONDS: Final = 0.05

"""How soon to check for a free slot again; no request is made for it."""


class SqsConsumer:
    """Consumes a queue: runs `concurrency` jobs at once, and requests no more messages than free slots.

    A message is deleted as soon as its run is claimed, so a job may take longer than the visibility timeout
    of the queue. A message whose run cannot be claimed stays in the queue, is delivered again, and finally
    goes where the queue's redrive policy sends it.
    """

    def __init__(
        self,
        app: ReceivingApp,
        queue_url: str,
        *,
        client: Any = None,
        concurrency: int = MAX_BATCH,
        poll: timedelta = LONG_POLL,
    ) -> None:
        self._app = app
        self._url = queue_url
        self._client = client or sqs_client("SqsConsumer")
        self._concurrency = concurrency
        self._poll_seconds = int(poll.total_seconds())

    async def serve(self) -> None:
        """Consume until SIGTERM or SIGINT, then wait for active runs."""
        with StopSignals() as signals:
            await self.run(signals.stop_requested)

    async def run(self, stopped: asyncio.Event) -> None:
        """Consume until the event is set, then wait for the current poll and for active runs."""
        async with self._app.receiver(concurrency=self._concurrency) as receiver:

            async def turn() -> float | None:
                return await self._turn(receiver, stopped)

            loop = Loop(f"sqs {self._url}", turn, poll_seconds=lambda: RECHECK_SECONDS)
            running = asyncio.create_task(loop.run(), name="trax sqs consumer")
            try:
                await stopped.wait()
            finally:
                loop.stop()
                await running

    async def _turn(self, receiver: Receiver, stopped: asyncio.Event) -> float | None:
        """One poll; the next one at once, or when a slot is free."""
        load = receiver.load
        free = load.slots - load.running - load.prefetched
        if free <= 0:
            return None
        messages = await asyncio.to_thread(self._receive_messages, min(free, MAX_BATCH))
        if stopped.is_set():
            await asyncio.to_thread(self._give_back, messages)
            return None
        done = [message for message in messages if await _try_claim_message(receiver, message)]
        await asyncio.to_thread(self._delete, done)
        return 0

    def _receive_messages(self, limit: int) -> Sequence[Message]:
        response = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=limit, WaitTimeSeconds=self._poll_seconds
        )
        return response.get("Messages", [])

    def _delete(self, messages: Sequence[Message]) -> None:
        """Delete messages. One that is left by an error is delivered again, and finds its run claimed."""
        if messages:
            self._client.delete_message_batch(QueueUrl=self._url, Entries=_entries(messages))

    def _give_back(self, messages: Sequence[Message]) -> None:
        """Make messages visible to other consumers now, not after the visibility timeout."""
        if messages:
            entries = _entries(messages, VisibilityTimeout=0)
            self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)


async def _try_claim_message(receiver: Receiver, message: Message) -> bool:
    """Claim the run of a message; True if the message can be deleted.

    A store error affects all messages, so it is raised.
    """
    try:
        await claim_run(receiver, message["Body"])
    except StoreError:
        raise
    except TraxError as reason:
        logger.warning("SQS message %s stays in the queue: %s", message["MessageId"], reason)
        return False
    return True


def _entries(messages: Sequence[Message], **more: Any) -> list[dict[str, Any]]:
    return [
        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"], **more}
        for number, message in enumerate(messages)
    ]


def lambda_handler(app: ReceivingApp) -> Callable[[Event, Any], dict[str, Any]]:
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


async def _handle_batch(app: ReceivingApp, event: Event, context: Any) -> list[dict[str, str]]:
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
