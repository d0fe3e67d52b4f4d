"""`SqsWorkers`: send a message for each run, ten per call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.dispatch.submit import Refused
from trax.submitters.sqs.client import MAX_BATCH, sqs_client
from trax.submitters.sqs.message import encode_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.dispatch.submit import Submission, SubmissionResult


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
