"""An SQS on this machine, with queues that are gone when it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.server import ThreadedMotoServer
from tests.support.sqs_consumer import client

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Amazon:
    """moto's server, on a port that is free."""

    def __init__(self) -> None:
        self._server: Any = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._queues: list[str] = []

    def __enter__(self) -> Self:
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self.client = client(self.endpoint)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self._server.stop()

    def clear(self) -> None:
        """Delete every queue that was made."""
        while self._queues:
            self.client.delete_queue(QueueUrl=self._queues.pop())

    def queue(self, name: str, **attributes: str) -> str:
        """A new queue; returns its address. What is not deleted comes again in two seconds."""
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        more = {"VisibilityTimeout": "2", **fifo, **attributes}
        queue_url = self.client.create_queue(QueueName=name, Attributes=more)["QueueUrl"]
        self._queues.append(queue_url)
        return queue_url

    def waiting(self, queue_url: str) -> int:
        """How many messages there are, with those that somebody holds at the moment."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        said = self.client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
        return sum(int(said["Attributes"][name]) for name in names)
