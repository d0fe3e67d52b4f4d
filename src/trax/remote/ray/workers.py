"""`RayWorkers`: run jobs as tasks of a Ray cluster, through a separate driver process.

Ray kills a process that is connected to a cluster when the cluster goes away. That must not happen to a
scheduler, so a separate process holds the connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TextIO

from trax.engine.submitter import Refused
from trax.errors import DefinitionError, MissingExtra, TraxError, format_value
from trax.schedule.validate import LABEL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from trax.engine.submitter import Submission, SubmissionResult

logger = logging.getLogger(__name__)
LEAVE_SECONDS: Final = 5
PROBLEM: Final = '{"problem":'

PROGRAM: Final = "trax.remote.ray.driver"

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
        self._resources = {train: dict(amounts) for train, amounts in (resources or {}).items()}
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
    async def lifespan(self, _receiver: object) -> AsyncGenerator[None]:
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
        return response["refused"]

    def _open_link(self) -> DriverLink:
        """Test the connection first: Ray itself takes half a minute to notice that the cluster is down."""
        host, colon, port = self._address.removeprefix("ray://").rpartition(":")
        if colon and port.isdecimal():
            with socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS):
                pass
        if self._link is None or not self._link.is_alive:
            self._drop()
            self._link = DriverLink(self._config, _log_problem)
        return self._link

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _log_problem(metadata_id: int, reason: str) -> None:
    logger.warning("run %s did not start in Ray: %s", metadata_id, reason, extra={"metadata_id": metadata_id})


def _check_plain(name: str, *values: Any) -> None:
    try:
        json.dumps(values)
    except TypeError as error:
        raise DefinitionError(
            f"RayWorkers {name!r}: resources and runtime_env must be JSON data ({error})"
        ) from None


def _with_version(runtime_env: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    """Ray gives each environment its own processes. The version is a setting there: workers show it."""
    if version is None:
        return dict(runtime_env)
    LABEL("the version of RayWorkers", version)
    variables = {**runtime_env.get("env_vars", {}), "TRAX_APP_VERSION": version}
    return {**runtime_env, "env_vars": variables}


class DriverLink:
    """One JSON line per request, per response, and per error of a task. The driver ends with this process."""

    def __init__(self, config: dict[str, Any], on_problem: Callable[[int, str], None]) -> None:
        self._on_problem = on_problem
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must not reach it: batches in progress are still submitted
        )
        assert self._process.stdin  # noqa: S101 - PIPE was passed
        assert self._process.stdout  # noqa: S101
        self._questions = self._process.stdin
        self._answers: SimpleQueue[str] = SimpleQueue()
        listening = Thread(
            target=self._read_lines, args=(self._process.stdout,), name="trax ray link", daemon=True
        )
        listening.start()
        with suppress(OSError):  # the first request will report that it has ended
            self._write_line(config)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def request(self, message: Any, seconds: float) -> dict[str, Any]:
        """Send a request and wait for the response; TraxError if Ray fails or does not respond."""
        try:
            self._write_line(message)
            line = self._answers.get(timeout=seconds)
        except Empty:
            raise TraxError(f"Ray did not respond within {seconds:g} s") from None
        except OSError:
            line = ""
        if not line:
            raise TraxError("connection to Ray lost; see stderr of the driver process")
        response = json.loads(line)
        if "failed" in response:
            raise TraxError(f"Ray rejected the request: {response['failed']}")
        return response

    def close(self) -> None:
        """Close stdin, which ends the driver; kill it if Ray keeps it alive."""
        with suppress(OSError):  # it may have ended before reading everything
            self._questions.close()
        try:
            self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write_line(self, message: Any) -> None:
        self._questions.write(json.dumps(message) + "\n")
        self._questions.flush()

    def _read_lines(self, output: TextIO) -> None:
        with output:
            for line in output:
                if line.startswith(PROBLEM):
                    self._on_problem(*json.loads(line)["problem"])
                else:
                    self._answers.put(line)
        self._answers.put("")
