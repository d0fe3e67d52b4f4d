"""The near side: a message for each run, ten in a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.dispatch.submit import Refused
from trax.submitters.sqs.client import TEN, sqs_client
from trax.submitters.sqs.message import written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.dispatch.submit import Answer, Submission


class SqsWorkers:
    """Hands runs to a queue, standard or FIFO (then its address ends in `.fifo`).

    `client` is a boto3 client of your own. In a FIFO queue, messages of one `message_group_id` are begun in
    order; without one each message is a group of its own, and waits for nobody.
    """

    batch_size = TEN

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

    def submit(self, batch: Sequence[Submission]) -> list[Answer]:
        """Send them all in one call; SQS says of each whether it has it."""
        entries = [self._entry(run) for run in batch]
        said = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
        answers: dict[str, Answer] = {one["Id"]: None for one in said.get("Successful", [])}
        answers |= {one["Id"]: _refused(one) for one in said.get("Failed", [])}
        return [answers.get(one["Id"], Refused("SQS did not say what became of it")) for one in entries]

    def _entry(self, run: Submission) -> dict[str, str]:
        entry = {"Id": str(run.metadata_id), "MessageBody": written(run)}
        if not self._url.endswith(".fifo"):
            return entry
        unique = f"{run.external_id}-{run.metadata_id}"
        return entry | {"MessageGroupId": self._group or unique, "MessageDeduplicationId": unique}


def _refused(failed: Mapping[str, Any]) -> Refused:
    return Refused(f"SQS refused it with {failed['Code']}: {failed.get('Message', '')}")
