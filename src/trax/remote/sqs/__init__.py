"""Run jobs in consumers of an Amazon SQS queue; messages carry the ids of runs.

client, message: the SQS client, and the body of a message

server side             queue              worker side
workers  SqsWorkers ──► messages ──┬──►    consumer   a process that claims and runs them
                                   └──►    handler    an AWS Lambda function
"""

from __future__ import annotations

from trax.remote.sqs.consumer import SqsConsumer, lambda_handler
from trax.remote.sqs.workers import SqsWorkers

__all__ = ["SqsConsumer", "SqsWorkers", "lambda_handler"]
