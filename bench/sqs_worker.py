"""The worker side of SQS: moto's server, a queue for Trax and one for plain messages, and a consumer."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import asyncio
import logging
from typing import Any

import boto3.session
from moto.server import ThreadedMotoServer

from bench.app import build_app
from bench.children import say, words
from trax.remote.sqs import SqsConsumer


def client(endpoint: str) -> Any:
    session: Any = boto3.session.Session("anybody", "anything", region_name="eu-central-1")
    return session.client("sqs", endpoint_url=endpoint)


async def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server: Any = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    sqs = client(endpoint := f"http://{host}:{port}")
    queue, bare = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("jobs", "bare"))
    stopped = asyncio.Event()
    consuming = asyncio.create_task(SqsConsumer(build_app().app, queue, client=sqs).run(stopped))
    say(ready=True, where={"endpoint": endpoint, "queue": queue, "bare": bare})
    async for _ in words():
        pass
    stopped.set()
    await consuming
    server.stop()


if __name__ == "__main__":
    asyncio.run(main())
