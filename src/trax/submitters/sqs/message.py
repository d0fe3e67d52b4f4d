"""The body of an SQS message: the id of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trax.errors import TraxError, format_value

if TYPE_CHECKING:
    from trax.dispatch.submit import Submission
    from trax.host.receiving import Receiver


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
