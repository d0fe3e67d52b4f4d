"""Run jobs through an Amazon SQS queue, whose messages carry the ids of runs.

`SqsWorkers` is the submitter. On the worker side `SqsConsumer` is a process, and `lambda_handler` an AWS
Lambda function.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from trax.bounds import is_id, load_json
from trax.engine.submitter import Refused
from trax.errors import StoreError, TraxError, format_value, import_extra
from trax.worker.loop import Loop, StopSignals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from trax.engine.submitter import Submission, SubmissionResult
    from trax.remote.receiver import Receiver, ReceivingApp

    Event: TypeAlias = Mapping[str, Any]
    Message: TypeAlias = Mapping[str, Any]

logger = logging.getLogger(__name__)
MAX_BATCH: Final = 10
"""The largest batch of messages in one SQS call."""

CONNECT_SECONDS: Final = 4

READ_SECONDS: Final = 30
"""Longer than the longest long poll."""


class SqsWorkers:
    """Submits runs to an SQS queue, standard or FIFO (URL ends in `.fifo`).

    `client` is your own boto3 client. In a FIFO queue, runs of one `message_group_id` start in order; without
    it each message is its own group, and order does not matter.
    """

    batch_size = MAX_BATCH

    def __init__(
        self,
        queue_url: str,
        *,
        client: Any = None,
        message_group_id: str | None = None,
        name: str = "sqs",
    ) -> None:
        self.name = name
        self._url = queue_url
        self._group = message_group_id
        self._client = client or sqs_client("SqsWorkers")

    def submit(self, batch: Sequence[Submission]) -> list[SubmissionResult]:
        """Send all runs in one call; SQS reports success or failure of each."""
        entries = [self._entry(run) for run in batch]
        response = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
        answers: dict[str, SubmissionResult] = {each["Id"]: None for each in response.get("Successful", [])}
        answers |= {each["Id"]: _refusal(each) for each in response.get("Failed", [])}
        return [answers.get(each["Id"], Refused("SQS reported no result for this run")) for each in entries]

    def _entry(self, run: Submission) -> dict[str, str]:
        entry = {"Id": str(run.metadata_id), "MessageBody": encode_message(run)}
        if not self._url.endswith(".fifo"):
            return entry
        unique = f"{run.external_id}-{run.metadata_id}"
        return entry | {"MessageGroupId": self._group or unique, "MessageDeduplicationId": unique}


def _refusal(failed: Mapping[str, Any]) -> Refused:
    return Refused(f"SQS rejected the message with {failed['Code']}: {failed.get('Message', '')}")


def sqs_client(used_by: str) -> Any:
    """A client with short timeouts: its callers retry anyway."""
    boto3: Any = import_extra("boto3", extra="sqs", feature=used_by)
    botocore: Any = import_extra("botocore.config", extra="sqs", feature=used_by)
    config = botocore.Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 2},
    )
    return boto3.session.Session().client("sqs", config=config)


def encode_message(run: Submission) -> str:
    return json.dumps({"metadata_id": run.metadata_id})


async def claim_run(receiver: Receiver, body: str) -> None:
    """Claim the run of a message; no effect if it was started elsewhere or has ended.

    Raises TraxError if the message must stay in the queue, or go to its dead-letter queue.
    """
    await receiver.claim_by_id(_decode_message(body))


def _decode_message(body: str) -> int:
    """The id of a run. Whoever may write to the queue may have written anything."""
    with suppress(ValueError):
        match load_json(body):
            case {"metadata_id": metadata_id} if is_id(metadata_id):
                return metadata_id
            case _:
                pass
    raise TraxError(f"invalid message, no metadata_id: {format_value(body)}")


MARGIN_SECONDS: Final = 5
"""How long before its time limit a function interrupts its runs."""


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
