"""How we reach SQS, where nobody gave us a client of their own."""

from __future__ import annotations

from typing import Any, Final

from trax.host.extras import needed

TEN: Final = 10
"""As many messages as SQS takes or gives in one call."""

CONNECT_SECONDS: Final = 4
READ_SECONDS: Final = 30
"""Longer than the longest poll."""


def sqs_client(who: str) -> Any:
    """A client that gives up soon: whoever uses it tries again anyway."""
    boto3: Any = needed("boto3", extra="sqs", by=who)
    botocore: Any = needed("botocore.config", extra="sqs", by=who)
    config = botocore.Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 2},
    )
    return boto3.session.Session().client("sqs", config=config)
