"""Running each job within the hand-over itself, in this process: for tests and small tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.errors import TraxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.dispatch.submit import Answer, Submission
    from trax.host.app import Trax
    from trax.host.receiving import Receiver


class Inline:
    """Takes up what it is handed, one after the other, and answers when it has ended.

    The records are the same as with workers. A train that fails was handed over well: its failure is in its
    record, and its retry policy says what follows.
    """

    name = "inline"
    timeout = None

    def __init__(self, app: Trax) -> None:
        self._app = app

    async def submit(self, batch: Sequence[Submission]) -> list[Answer]:
        async with self._app.receiving(concurrency=1) as receiver:
            return [await _executed(receiver, run) for run in batch]


async def _executed(receiver: Receiver, run: Submission) -> Answer:
    try:
        await receiver.take_up(run.metadata_id)
        await receiver.idle()
    except TraxError as refused:
        return refused
    return None
