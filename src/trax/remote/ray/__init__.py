"""Run jobs as tasks of a Ray cluster, for runs that need a GPU or many machines.

server side                             cluster
workers  RayWorkers, the submitter
link     lines exchanged with     ──►   driver   a process connected to Ray
                                          └──►   yard   an actor that owns the tasks; one task per run,
                                                        in processes that claim runs by id
"""

from __future__ import annotations

from trax.remote.ray.workers import RayWorkers

__all__ = ["RayWorkers"]
