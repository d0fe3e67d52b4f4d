"""SQS put through the scenarios: its submitter, and a consumer in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import sqs_consumer
from tests.support.preloaded_engine import PreloadedEngine

from trax.remote.sqs import SqsWorkers

if TYPE_CHECKING:
    from trax import Trax
    from trax.testing.submitter_contract import Workspace


class SqsEngine(PreloadedEngine):
    """A queue at an endpoint that is not Amazon's."""

    def __init__(self, endpoint: str, queue_url: str) -> None:
        self._endpoint = endpoint
        self._queue_url = queue_url

    def submitter(self, app: Trax) -> SqsWorkers:
        del app
        return SqsWorkers(self._queue_url, client=sqs_consumer.client(self._endpoint))

    async def start(self, site: Workspace) -> None:
        where = {sqs_consumer.ENDPOINT: self._endpoint, sqs_consumer.QUEUE: self._queue_url}
        await self.launch("-m", sqs_consumer.__name__, site=site, **where)
