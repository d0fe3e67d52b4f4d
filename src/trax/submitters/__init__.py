"""Where runs may go beside our own workers.

inline    within the hand-over itself, in this process

Write your own with `trax.Submitter`: a name, and a function that hands over a batch.
"""

from __future__ import annotations

from trax.submitters.inline import Inline

__all__ = ["Inline"]
