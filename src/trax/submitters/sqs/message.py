"""What a message says: whose record it is about, and no more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trax.errors import TraxError, shown

if TYPE_CHECKING:
    from trax.dispatch.submit import Submission
    from trax.host.receiving import Receiver


def written(run: Submission) -> str:
    return json.dumps({"metadata_id": run.metadata_id})


async def taken_up(receiver: Receiver, body: str) -> None:
    """Take up the run of a message; nothing happens when it has begun elsewhere, or is over.

    Raises TraxError when the message must stay in the queue, or go to its dead-letter queue.
    """
    await receiver.take_up(_read(body))


def _read(body: str) -> int:
    try:
        said: Any = json.loads(body)
        return int(said["metadata_id"])
    except (ValueError, TypeError, KeyError):
        raise TraxError(f"this message is not about a run: {shown(body)}") from None
