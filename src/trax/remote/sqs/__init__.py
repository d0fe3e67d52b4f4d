"""Run jobs in consumers of an Amazon SQS queue; messages carry the ids of runs.

workers.py   server side: `SqsWorkers`, the submitter; the client, and the body of a message
consumer.py  worker side: a process that claims and runs jobs, or an AWS Lambda function
"""

from __future__ import annotations

from trax.remote.sqs.consumer import SqsConsumer, lambda_handler
from trax.remote.sqs.workers import SqsWorkers

__all__ = ["SqsConsumer", "SqsWorkers", "lambda_handler"]
