"""Submitters: run jobs outside Trax's own workers.

hand_over.py  call a submitter with runs of the outbox, and write the results
receiver.py   the worker side: claim runs by id and execute them

inline.py     in this process, during the hand-over
http/         in processes with an HTTP endpoint
celery.py     in Celery workers
ray/          in tasks of a Ray cluster
sqs.py        in consumers of an Amazon SQS queue, or in an AWS Lambda function

Write your own with `trax.Submitter`: a name, and a function that submits a batch.
"""

from __future__ import annotations

from trax.remote.http.client import CallRetry
from trax.remote.http.workers import HttpWorkers
from trax.remote.inline import Inline

__all__ = ["CallRetry", "HttpWorkers", "Inline"]
