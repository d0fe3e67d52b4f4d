"""A Ray cluster on this machine, started by a test and gone after it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.waiting import until

from trax.remote.ray.workers import RayWorkers
from trax.testing.submitter_contract import Workspace

if TYPE_CHECKING:
    from trax import Trax

PROJECT = Path(__file__).parent.parent.parent
APP = f"{__name__}:site_app"
SITE = "TRAX_TEST_RAY_SITE"
STARTS = 5
TIMEOUT_SECONDS = 120
"""Ray takes half a minute to start where others are at work as well."""


def site_app() -> Trax:
    """The app as a process of the cluster finds it: at the site that was written down last.

    Not by a `runtime_env`: then none of the processes that Ray keeps ready would do, and each test would wait
    for new ones.
    """
    os.environ.update(json.loads(Path(os.environ[SITE]).read_text(encoding="utf-8")))
    return Workspace.from_environment().app()


class Cluster:
    """One node. Whatever it starts is in its session, and ended with it."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # sockets want short paths
        self._log = self._folder / "start.log"
        self.access = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        """What whoever connects has in its environment: said outright, so that no home folder counts."""
        self._site = self._folder / "site.json"
        self._process: subprocess.Popen[bytes] | None = None

    def work_at(self, site: Workspace) -> None:
        """Processes that load the app from now on find this site."""
        self._site.write_text(json.dumps(site.environment), encoding="utf-8")

    def begin(self) -> None:
        """Return when it runs; it may run already.

        Ray itself gives up after half a minute, which a busy machine may need: then it is started again.
        """
        if self._process is not None:
            return
        for _ in range(STARTS):
            with self._log.open("wb") as log:
                self._process = process = subprocess.Popen(
                    self._command(), stdout=log, stderr=log, env=self._environment(), start_new_session=True
                )
            until(lambda: self._has_started() or process.poll() is not None, within_seconds=TIMEOUT_SECONDS)  # noqa: B023
            if self._has_started():
                return
            self.end()
        raise AssertionError(self._log.read_text(encoding="utf-8"))

    def workers(self) -> list[int]:
        """The processes that run actors and tasks."""
        return [
            pid for pid in self._session() if _title(pid).startswith("ray::") and "Agent" not in _title(pid)
        ]

    def end_workers(self, number: signal.Signals) -> None:
        """Have them end, and wait until they have."""
        doomed = self.workers()
        for pid in doomed:
            _send(pid, number)
        until(lambda: not set(doomed) & set(self._session()), within_seconds=TIMEOUT_SECONDS)

    def end(self) -> None:
        """End all of it, by its ids; it may begin again, at the same address.

        Ray is not asked to: with somebody connected, it has not ended after half a minute.
        """
        process = self._process
        if process is None:
            return
        while doomed := self._session():
            for pid in doomed:
                _send(pid, signal.SIGKILL)
            process.poll()  # or it would stay for ever, as one that has ended
        process.wait()
        self._process = None

    def remove(self) -> None:
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _command(self) -> list[str]:
        told = (
            "--head",
            "--node-ip-address=127.0.0.1",
            f"--port={self.port}",
            "--num-cpus=3",
            "--num-gpus=1",
        )
        quiet = ("--include-dashboard=false", "--disable-usage-stats", "--dashboard-agent-listen-port=0")
        ray = Path(sys.executable).with_name("ray")
        return [str(ray), "start", *told, *quiet, f"--temp-dir={self._folder}", "--block"]

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(PROJECT), str(PROJECT / "src")))
        ours = {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0", SITE: str(self._site)}
        ours["RAY_gcs_server_port_wait_time_s"] = str(TIMEOUT_SECONDS)
        return {**os.environ, **ours, **self.access}

    def _has_started(self) -> bool:
        return "Ray runtime started" in self._log.read_text(encoding="utf-8")

    def _session(self) -> list[int]:
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [pid for pid in pids if self._process and _session_of(pid) == self._process.pid]


class RayEngine:
    """A cluster whose processes end when the far side does; they come again when there is work for them."""

    def __init__(self, cluster: Cluster, site: Workspace) -> None:
        self._cluster = cluster
        cluster.work_at(site)
        self._workers = RayWorkers(APP, name=f"ray-{site.folder.name}", address=cluster.address)

    def submitter(self, app: Trax) -> RayWorkers:
        del app
        return self._workers

    async def start(self, site: Workspace) -> None:
        del site
        await asyncio.to_thread(self._cluster.begin)

    async def stop(self) -> None:
        """Ray ends its processes without asking them, so this is what stopping is."""
        await self.kill()

    async def kill(self) -> None:
        await asyncio.to_thread(self._cluster.end_workers, signal.SIGKILL)

    def close(self) -> None:
        self._workers.close()


class WholeCluster(RayEngine):
    """The same, but the whole cluster goes away."""

    async def stop(self) -> None:
        await asyncio.to_thread(self._cluster.end)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").strip("\0")
    except OSError:
        return ""


def _session_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    state, _, _, session = stat.rpartition(")")[2].split()[:4]
    return None if state == "Z" else int(session)
