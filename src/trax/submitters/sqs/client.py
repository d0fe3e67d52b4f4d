"""The default SQS client, if the user passes none."""

from __future__ import annotations

from typing import Any, Final

from trax.host.extras import import_extra

MAX_BATCH: Final = 10
"""The largest batch of messages in one SQS call."""

CONNECT_SECONDS: Final = 4
READ_SECONDS: Final = 30
"""Longer than the longest long poll."""


def sqs_client(used_by: str) -> Any:
    """A client with short timeouts: its callers retry anyway."""
    boto3: Any = import_extra("boto3", extra="sqs", feature=used_by)
    botocore: Any = import_extra("botocore.config", extra="sqs", feature=used_by)
    config = botocore.Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 2},
    )
    return boto3.session.Session().client("sqs", config=config)
