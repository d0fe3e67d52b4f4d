"""A queue of Amazon SQS carries the ids of runs to whoever consumes it.

near side               queue              far side
workers  SqsWorkers ──► messages ──┬──►    consumer   a process that takes up what it finds
                                   └──►    handler    an AWS Lambda function, called with what was found
"""

from __future__ import annotations

from trax.submitters.sqs.consumer import SqsConsumer
from trax.submitters.sqs.handler import lambda_handler
from trax.submitters.sqs.workers import SqsWorkers

__all__ = ["SqsConsumer", "SqsWorkers", "lambda_handler"]
