"""A Ray cluster, through Trax and on its own."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.ray_cluster import Cluster

from bench.app import build_app
from bench.children import child
from bench.engines import Figures, Sizes, ours
from trax.remote.ray.workers import RayWorkers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

WARM_UP: Final = 40


class Connected(RayWorkers):
    """Stays open from round to round: connecting takes seconds, once in the life of a server."""

    @asynccontextmanager
    async def lifespan(self, _receiver: object) -> AsyncGenerator[None]:
        yield


async def measure(url: str, sizes: Sizes) -> dict[str, Figures]:
    build_app(url).app.context.store.open_blocking()
    cluster = Cluster()
    os.environ.update(cluster.access)
    try:
        cluster.begin()
        return {
            "bare Ray, with results": _bare(cluster, sizes),
            "RayWorkers": await _through_us(cluster, url, sizes),
        }
    finally:
        cluster.remove()


def _bare(cluster: Cluster, sizes: Sizes) -> Figures:
    environment = {"CLUSTER": cluster.address}
    with child(Path(sys.executable), "bench.ray_worker", environment=environment) as bare:
        bare.tell(f"{sizes.many} {sizes.single} {sizes.rounds}")
        return Figures(*bare.hear("bare"))


async def _through_us(cluster: Cluster, url: str, sizes: Sizes) -> Figures:
    variables = {"env_vars": {"TRAX_DATABASE_URL": url}}
    workers = Connected("bench.app:app", address=cluster.address, runtime_env=variables)
    try:
        await ours(url, workers, Sizes(min(WARM_UP, sizes.many), single=0, rounds=1))
        return await ours(url, workers, sizes)
    finally:
        workers.close()
