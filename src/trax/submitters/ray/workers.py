"""`RayWorkers`: run jobs as tasks of a Ray cluster, with resources per train."""

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
from trax.errors import DefinitionError, MissingExtra, format_value
from trax.submitters.ray.link import DriverLink

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from trax.dispatch.submit import Submission, SubmissionResult

logger = logging.getLogger(__name__)

CALL_TIMEOUT: Final = timedelta(seconds=60)
"""The timeout of a call. The first one loads Ray and connects to the cluster."""
CONNECT_SECONDS: Final = 2


class RayWorkers:
    """Submits runs to a Ray cluster, where each is a task that claims its run by id.

    `app` is where a process of the cluster finds the app: `module:app`, or a function there that returns it.
    `resources` are the options of `ray.remote` per train: `num_cpus`, `num_gpus`, `memory`, `resources`,
    `scheduling_strategy`; the default is one CPU. A new `version` gets new processes: change it at each
    deploy, since running processes keep the code they have loaded.
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
        timeout: timedelta = CALL_TIMEOUT,
    ) -> None:
        if find_spec("ray") is None:
            raise MissingExtra("RayWorkers", "ray", "ray")
        if not all(app.partition(":")):
            raise DefinitionError(f"RayWorkers needs an app such as 'jobs:app' (got {format_value(app)})")
        self.name = name
        self.timeout = timeout
        self._resources = {train: dict(words) for train, words in (resources or {}).items()}
        self._calling = Lock()
        self._link: DriverLink | None = None
        self._address = address
        self._config = {
            "app": app,
            "name": name,
            "address": address,
            "runtime_env": _with_version(runtime_env or {}, version),
        }
        _check_plain(name, self._resources, self._config["runtime_env"])

    def submit(self, batch: Sequence[Submission]) -> list[SubmissionResult]:
        """Submit a batch in one call. Ray's queue is in memory: runs it loses are submitted again."""
        runs = [[run.metadata_id, self._resources.get(run.train, {})] for run in batch]
        refused = self._call_cluster("hand_over", runs)
        return [
            Refused(refused[str(run.metadata_id)]) if str(run.metadata_id) in refused else None
            for run in batch
        ]

    def withdraw(self, batch: Sequence[Submission]) -> None:
        """Cancel tasks that have not started; their runs have ended already."""
        self._call_cluster("withdraw", [run.metadata_id for run in batch])

    @asynccontextmanager
    async def opened(self, _receiving: object) -> AsyncGenerator[None]:
        """Close the connection when the server stops."""
        try:
            yield
        finally:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Disconnect from the cluster. Submitted runs continue."""
        with self._calling:
            self._drop()

    def _call_cluster(self, verb: str, arguments: list[Any]) -> dict[str, str]:
        """Send one request at a time. After a failure the next one opens a new link."""
        with self._calling:
            try:
                response = self._open_link().request([verb, arguments], self.timeout.total_seconds())
            except BaseException:
                self._drop()
                raise
        for metadata_id, reason in response["problems"]:
            logger.warning(
                "run %s did not start in Ray: %s", metadata_id, reason, extra={"metadata_id": metadata_id}
            )
        return response["refused"]

    def _open_link(self) -> DriverLink:
        """Test the connection first: Ray itself takes half a minute to notice that the cluster is down."""
        host, colon, port = self._address.removeprefix("ray://").rpartition(":")
        if colon and port.isdecimal():
            with socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS):
                pass
        if self._link is None or not self._link.is_alive:
            self._drop()
            self._link = DriverLink(self._config)
        return self._link

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _check_plain(name: str, *values: Any) -> None:
    try:
        json.dumps(values)
    except TypeError as error:
        raise DefinitionError(
            f"RayWorkers {name!r}: resources and runtime_env must be JSON data ({error})"
        ) from None


def _with_version(runtime_env: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    if version is None:
        return dict(runtime_env)
    variables = {**runtime_env.get("env_vars", {}), "TRAX_RAY_VERSION": version}
    return {**runtime_env, "env_vars": variables}
