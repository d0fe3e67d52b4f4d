"""Run jobs as tasks of a Ray cluster, for runs that need a GPU or many machines.

workers.py  server side: `RayWorkers`, the submitter, and the link to its driver process
driver.py   the driver process, connected to Ray
tasks.py    in the cluster: an actor that owns the tasks, and one task per run

A task runs in a process of the cluster that claims the run by id.
"""

from __future__ import annotations

from trax.remote.ray.workers import RayWorkers

__all__ = ["RayWorkers"]
