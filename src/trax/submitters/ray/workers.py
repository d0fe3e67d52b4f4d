"""Runs as tasks of a Ray cluster, placed by what each train needs."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from trax.dispatch.submit import Refused
from trax.errors import DefinitionError, MissingExtra, shown
from trax.submitters.ray.link import Link

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from trax.dispatch.submit import Answer, Submission

logger = logging.getLogger(__name__)

PATIENCE: Final = timedelta(seconds=60)
"""How long a call may take. The first one has to load Ray and to find the cluster."""
KNOCK_SECONDS: Final = 2


class RayWorkers:
    """Hands runs to a Ray cluster. There, each is a task that takes its record up by its id.

    `app` says where a process of the cluster finds the app: `module:app`, or a function there that makes it.
    `resources` says what a run of a train takes up, in the words of `ray.remote`: `num_cpus`, `num_gpus`,
    `memory`, `resources`, `scheduling_strategy`; a train without a word takes one CPU. A new `version` gets
    new processes: give it at each deploy, since those that run keep the code they have loaded.
    """

    batch_size = 100

    def __init__(
        self,
        app: str,
        *,
        name: str = "ray",
        address: str = "auto",
        resources: Mapping[str, Mapping[str, Any]] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        version: str | None = None,
        timeout: timedelta = PATIENCE,
    ) -> None:
        if find_spec("ray") is None:
            raise MissingExtra("RayWorkers", "ray", "ray")
        if not all(app.partition(":")):
            raise DefinitionError(f"RayWorkers needs an app such as 'jobs:app' (got {shown(app)})")
        self.name = name
        self.timeout = timeout
        self._resources = {train: dict(words) for train, words in (resources or {}).items()}
        self._calling = Lock()
        self._link: Link | None = None
        self._address = address
        self._config = {
            "app": app,
            "name": name,
            "address": address,
            "runtime_env": _with_version(runtime_env or {}, version),
        }
        _check_plain(name, self._resources, self._config["runtime_env"])

    def submit(self, batch: Sequence[Submission]) -> list[Answer]:
        """Hand over a batch in one call. Ray keeps its queue in memory: what it loses is handed over anew."""
        runs = [[run.metadata_id, self._resources.get(run.train, {})] for run in batch]
        refused = self._asked("hand_over", runs)
        return [
            Refused(refused[str(run.metadata_id)]) if str(run.metadata_id) in refused else None
            for run in batch
        ]

    def withdraw(self, batch: Sequence[Submission]) -> None:
        """Take tasks that have not begun out of Ray's queue; their records are over already."""
        self._asked("withdraw", [run.metadata_id for run in batch])

    @asynccontextmanager
    async def opened(self, _receiving: object) -> AsyncGenerator[None]:
        """The connection lasts no longer than the server that hands over."""
        try:
            yield
        finally:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Let go of the cluster. What it was handed goes on."""
        with self._calling:
            self._drop()

    def _asked(self, verb: str, what: list[Any]) -> dict[str, str]:
        """One question at a time. After one that went wrong there is a new link, perhaps to a new cluster."""
        with self._calling:
            try:
                answer = self._opened().ask([verb, what], self.timeout.total_seconds())
            except BaseException:
                self._drop()
                raise
        for metadata_id, reason in answer["problems"]:
            logger.warning(
                "run %s did not begin in Ray: %s", metadata_id, reason, extra={"metadata_id": metadata_id}
            )
        return answer["refused"]

    def _opened(self) -> Link:
        """Knock first: Ray itself takes half a minute to notice that nobody is there."""
        host, colon, port = self._address.removeprefix("ray://").rpartition(":")
        if colon and port.isdecimal():
            with socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS):
                pass
        if self._link is None or not self._link.lives:
            self._drop()
            self._link = Link(self._config)
        return self._link

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _check_plain(name: str, *said: Any) -> None:
    try:
        json.dumps(said)
    except TypeError as odd:
        raise DefinitionError(
            f"RayWorkers {name!r}: resources and runtime_env are plain data, since they travel ({odd})"
        ) from None


def _with_version(runtime_env: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    if version is None:
        return dict(runtime_env)
    variables = {**runtime_env.get("env_vars", {}), "TRAX_RAY_VERSION": version}
    return {**runtime_env, "env_vars": variables}
