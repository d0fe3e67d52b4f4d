"""A RabbitMQ broker on this machine: Debian's, with a folder, ports and a name of its own."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from pathlib import Path
from typing import IO, Final

from tests.support.served import free_port
from tests.support.waiting import until

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Not the one in PATH: that changes to a user of its own, and to the folder of the machine's broker."""

TIMEOUT_SECONDS: Final = 120


class Rabbit:
    """It keeps what it was sent when it is stopped, and may be started again at the same address.

    Erlang's nodes find each other by a process called epmd, one to a machine. This one is ours and known to
    nobody else; it is started before the node, or the node would start one that nobody ends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._epmd_port, self._node_port = free_port(), free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}//"
        self._log = folder / "log"
        self._epmd: subprocess.Popen[bytes] | None = None
        self._node: subprocess.Popen[bytes] | None = None
        self._write_settings()

    def start(self) -> None:
        """Return when it runs; it may run already."""
        if self._node is not None:
            return
        with self._log.open("wb") as log:
            if self._epmd is None:
                self._epmd = self._started(log, "epmd", "-address", "127.0.0.1")
                until(self._epmd_answers, within_seconds=TIMEOUT_SECONDS)
            self._node = self._started(log, str(SERVER))
        until(self._has_started, within_seconds=TIMEOUT_SECONDS)

    def stop(self) -> None:
        """It says farewell to its clients, and keeps what is to be kept."""
        node, self._node = self._node, None
        _end(node)

    def remove(self) -> None:
        """The end of it, and of its epmd."""
        self.stop()
        epmd, self._epmd = self._epmd, None
        _end(epmd)

    def queue(self) -> str:
        """A name that no test has used: they share the broker."""
        return f"jobs-{secrets.token_hex(4)}"

    def _started(self, log: IO[bytes], *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env={**os.environ, **self._environment()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # the node is a child of its script: so both can be killed at once
        )

    def _epmd_answers(self) -> bool:
        asked = subprocess.run(
            ["epmd", "-names"], env={**os.environ, **self._environment()}, capture_output=True, check=False
        )
        return asked.returncode == 0

    def _has_started(self) -> bool:
        assert self._node, "it was never started"
        said = self._log.read_text(encoding="utf-8", errors="replace")
        assert self._node.poll() is None, said
        return "Server startup complete" in said

    def _write_settings(self) -> None:
        self._folder.mkdir(parents=True)
        settings = {
            "rabbitmq.conf": f"listeners.tcp.1 = 127.0.0.1:{self._port}\nlog.console = true\n",
            "plugins": "[].",
            "env.conf": "",
        }
        for name, text in settings.items():
            (self._folder / name).write_text(text, encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        folder = str(self._folder)
        return {
            "HOME": folder,  # where Erlang keeps the word by which nodes trust each other
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": f"trax-{self._port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/env.conf",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/none.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": folder,
            "RABBITMQ_LOGS": "-",
        }


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    process.terminate()
    try:
        process.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
