"""SQS, as emulated by moto, through Trax and on its own."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench.app import build_app
from bench.children import child
from bench.engines import Figures, Sizes, ours, timed
from bench.sqs_worker import client
from trax.remote.sqs import SqsWorkers

TEN: Final = 10


async def measure(url: str, sizes: Sizes) -> dict[str, Figures]:
    build_app(url).app.context.store.open_blocking()
    with child(Path(sys.executable), "bench.sqs_worker", environment={"TRAX_DATABASE_URL": url}) as worker:
        where = worker.hear("where")
        sqs = client(where["endpoint"])
        return {
            "bare SQS, sent and received": await _bare(sqs, where["bare"], sizes),
            "SqsWorkers": await ours(url, SqsWorkers(where["queue"], client=sqs), sizes),
        }


async def _bare(sqs: Any, queue: str, sizes: Sizes) -> Figures:
    async def call() -> None:
        await asyncio.to_thread(_carried, sqs, queue, 1)

    began = time.perf_counter()
    await asyncio.to_thread(_carried, sqs, queue, sizes.many)
    rate = sizes.many / (time.perf_counter() - began)
    return Figures([rate], await timed(call, sizes.single))


def _carried(sqs: Any, queue: str, count: int) -> None:
    """Send this many messages, then receive and delete all of them, ten per call."""
    for start in range(0, count, TEN):
        numbers = range(start, min(start + TEN, count))
        sent = [{"Id": str(number), "MessageBody": str(number)} for number in numbers]
        sqs.send_message_batch(QueueUrl=queue, Entries=sent)
    while count:
        found = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=TEN).get("Messages", [])
        done = [{"Id": one["MessageId"], "ReceiptHandle": one["ReceiptHandle"]} for one in found]
        sqs.delete_message_batch(QueueUrl=queue, Entries=done)
        count -= len(found)
