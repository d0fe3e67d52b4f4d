"""`SqsWorkers`: submit runs to an Amazon SQS queue; the client, and the body of a message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from trax.engine.submitter import Refused
from trax.errors import TraxError, format_value, import_extra

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.engine.submitter import Submission, SubmissionResult
    from trax.remote.receiver import Receiver


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
    try:
        message: Any = json.loads(body)
        return int(message["metadata_id"])
    except (ValueError, TypeError, KeyError):
        raise TraxError(f"invalid message, no metadata_id: {format_value(body)}") from None
