"""Where runs may go beside our own workers.

inline    within the hand-over itself, in this process
http      processes that answer HTTP
celery    workers of Celery
ray       tasks of a Ray cluster
sqs       whoever consumes a queue of Amazon SQS

Write your own with `trax.Submitter`: a name, and a function that hands over a batch.
"""

from __future__ import annotations

from trax.submitters.http import HttpWorkers
from trax.submitters.inline import Inline
from trax.submitters.retrying import Patience

__all__ = ["HttpWorkers", "Inline", "Patience"]
