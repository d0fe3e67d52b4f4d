"""The far side as a process: take from the queue what there is room for, and take it up."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from trax.errors import StoreError, TraxError
from trax.host.loop import Loop
from trax.host.signals import StopSignals
from trax.submitters.sqs.client import TEN, sqs_client
from trax.submitters.sqs.message import taken_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from trax.host.app import Trax
    from trax.host.receiving import Receiver

    Message: TypeAlias = Mapping[str, Any]

logger = logging.getLogger(__name__)

LONG_POLL: Final = timedelta(seconds=10)
FULL_SECONDS: Final = 0.05
"""How soon to look for room again. It costs nothing: nobody is asked."""


class SqsConsumer:
    """Consumes a queue: runs `concurrency` jobs at once, and asks for no more messages than it has room for.

    A message is deleted as soon as its record has moved on: from then on the record is what counts, so a job
    may take longer than the visibility timeout of the queue. What could not be taken up stays in the queue,
    comes again, and in the end goes where the queue's redrive policy sends it.
    """

    def __init__(
        self,
        app: Trax,
        queue_url: str,
        *,
        client: Any = None,
        concurrency: int = TEN,
        poll: timedelta = LONG_POLL,
    ) -> None:
        self._app = app
        self._url = queue_url
        self._client = client or sqs_client("SqsConsumer")
        self._concurrency = concurrency
        self._poll_seconds = int(poll.total_seconds())

    async def serve(self) -> None:
        """Consume until SIGTERM or SIGINT, then let what runs end."""
        with StopSignals() as signals:
            await self.run(signals.asked)

    async def run(self, stopped: asyncio.Event) -> None:
        """Consume until the event is set, then let what runs end. A poll under way is waited for."""
        async with self._app.receiving(concurrency=self._concurrency) as receiver:

            async def turn() -> float | None:
                return await self._turn(receiver, stopped)

            loop = Loop(f"sqs {self._url}", turn, poll_seconds=lambda: FULL_SECONDS)
            running = asyncio.create_task(loop.run(), name="trax sqs consumer")
            try:
                await stopped.wait()
            finally:
                loop.stop()
                await running

    async def _turn(self, receiver: Receiver, stopped: asyncio.Event) -> float | None:
        """One poll; the next one at once, or when there is room."""
        load = receiver.load
        room = load.slots - load.running - load.prefetched
        if room <= 0:
            return None
        messages = await asyncio.to_thread(self._received, min(room, TEN))
        if stopped.is_set():
            await asyncio.to_thread(self._give_back, messages)
            return None
        done = [one for one in messages if await _is_done_with(receiver, one)]
        await asyncio.to_thread(self._delete, done)
        return 0

    def _received(self, most: int) -> Sequence[Message]:
        said = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=most, WaitTimeSeconds=self._poll_seconds
        )
        return said.get("Messages", [])

    def _delete(self, messages: Sequence[Message]) -> None:
        """One that stays by mistake comes again, and finds its record taken."""
        if messages:
            self._client.delete_message_batch(QueueUrl=self._url, Entries=_entries(messages))

    def _give_back(self, messages: Sequence[Message]) -> None:
        """Let another consumer have these now, not only when their time has passed."""
        if messages:
            entries = _entries(messages, VisibilityTimeout=0)
            self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)


async def _is_done_with(receiver: Receiver, message: Message) -> bool:
    """Whether the message has served its purpose; a database that is gone concerns all of them."""
    try:
        await taken_up(receiver, message["Body"])
    except StoreError:
        raise
    except TraxError as reason:
        logger.warning("message %s stays in the queue: %s", message["MessageId"], reason)
        return False
    return True


def _entries(messages: Sequence[Message], **more: Any) -> list[dict[str, Any]]:
    return [
        {"Id": str(number), "ReceiptHandle": one["ReceiptHandle"], **more}
        for number, one in enumerate(messages)
    ]
