"""The far side of SQS: a process that consumes a queue for the site's app."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import boto3.session
from botocore.config import Config

from trax.remote.sqs import SqsConsumer
from trax.testing.submitter_contract import Workspace
from trax.worker.loop import StopSignals

ENDPOINT = "TRAX_TEST_SQS_ENDPOINT"
QUEUE = "TRAX_TEST_SQS_QUEUE"


def client(endpoint: str) -> Any:
    """One that says at once when nobody is there."""
    session: Any = boto3.session.Session(
        aws_access_key_id="anybody", aws_secret_access_key="anything", region_name="eu-central-1"
    )
    config: Any = Config(connect_timeout=5, retries={"total_max_attempts": 1})
    return session.client("sqs", endpoint_url=endpoint, config=config)


async def main() -> None:
    queue, its_client = os.environ[QUEUE], client(os.environ[ENDPOINT])
    app = Workspace.from_environment().app()
    consumer = SqsConsumer(app, queue, client=its_client, concurrency=8, poll=timedelta(seconds=1))
    with StopSignals() as signals:
        print("ready", flush=True)  # noqa: T201
        await consumer.run(signals.stop_requested)


if __name__ == "__main__":
    asyncio.run(main())
