"""`Inline`: run each job in this process during the hand-over, for tests and small tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.errors import TraxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.engine.submitter import Submission, SubmissionResult
    from trax.remote.receiver import Receiver, ReceivingApp


class Inline:
    """Runs submitted jobs one after the other, and returns when they have ended.

    The records are the same as with workers. A train that fails was submitted successfully: the failure is in
    its record, and its retry policy applies.
    """

    name = "inline"
    timeout = None

    def __init__(self, app: ReceivingApp) -> None:
        self._app = app

    async def submit(self, batch: Sequence[Submission]) -> list[SubmissionResult]:
        async with self._app.receiver(concurrency=1) as receiver:
            return [await _execute(receiver, run) for run in batch]


async def _execute(receiver: Receiver, run: Submission) -> SubmissionResult:
    try:
        await receiver.claim_by_id(run.metadata_id)
        await receiver.wait_until_idle()
    except TraxError as error:
        return error
    return None
