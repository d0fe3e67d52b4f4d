"""PgBouncer in transaction mode on this machine: Debian's, with a folder and a port of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from sqlalchemy import make_url
from tests.support.served import free_port
from tests.support.waiting import until

from trax.testing.postgres import server_owner

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAM: Final = Path("/usr/sbin/pgbouncer")
POOL_SIZE: Final = 6
"""Connections to the server; a fleet has many times as many clients."""


class PgBouncer:
    """It takes clients to one server, and may be killed and started again at the same address."""

    def __init__(self, url: str, folder: Path) -> None:
        server = make_url(url)
        self._folder = folder
        self._owner = server_owner()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self.url = server.set(host="127.0.0.1", port=self._port).render_as_string(hide_password=False)
        settings = [
            "[databases]",
            f"* = host={server.host} port={server.port}",
            "[pgbouncer]",
            f"listen_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =",
            f"auth_type = trust\nauth_file = {folder}/users",
            f"pool_mode = transaction\ndefault_pool_size = {POOL_SIZE}",
        ]
        (folder / "pgbouncer.ini").write_text("\n".join(settings), encoding="utf-8")
        (folder / "users").write_text(f'"{server.username}" ""\n', encoding="utf-8")
        (folder / "log").touch()
        self._owner.chown_all(folder)

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, self._folder / "pgbouncer.ini"],
                user=self._owner.uid,
                group=self._owner.gid,
                extra_groups=None if self._owner.uid is None else [],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._answers)

    def kill(self) -> None:
        """Without a word to its clients or the server."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(60)

    def _answers(self) -> bool:
        assert self._process, "it was never started"
        assert self._process.poll() is None, (self._folder / "log").read_text(encoding="utf-8")
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def pgbouncer_to(url: str) -> Generator[PgBouncer]:
    """One in front of this server; it refuses to run as root, so its folder is one that others can enter."""
    folder = Path(tempfile.mkdtemp(prefix="trax-pgbouncer-", dir="/tmp"))
    pooler = PgBouncer(url, folder)
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.kill()
        shutil.rmtree(folder)
