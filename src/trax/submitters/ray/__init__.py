"""A Ray cluster executes, where a run needs a GPU, or more machines than one.

near side                               cluster
workers  RayWorkers, the submitter
link     the lines exchanged with ──►   driver   a process that speaks to Ray
                                          └──►   yard   an actor that owns the tasks; a task for each run,
                                                        in processes that take runs up by their id
"""

from __future__ import annotations

from trax.submitters.ray.workers import RayWorkers

__all__ = ["RayWorkers"]
