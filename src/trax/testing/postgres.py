"""A PostgreSQL server for the length of a block, which leaves no process and no folder behind."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, cast
from weakref import WeakSet

from trax.errors import TraxError
from trax.testing import _watch
from trax.testing.postgres_binaries import (
    PostgresNotFound,
    checked_binaries,
    copy_binaries,
    find_binaries,
    placed_binaries,
)
from trax.testing.postgres_owner import Owner, server_owner

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["PostgresFailed", "PostgresNotFound", "Server", "postgres", "postgres_server"]

URL_VARIABLE = "TRAX_TEST_DATABASE_URL"
QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
# Below the ports given to clients, so that none of them sits on a stopped server's port when it starts again.
PORTS = range(15_000, 32_000)
PORT_TAKEN = "Address already in use"
SOCKET_PATH_BYTES = 107

StopMode = Literal["smart", "fast", "immediate"]


class PostgresFailed(TraxError):
    """One of PostgreSQL's programs did not do what was asked; the message ends with its log."""


@contextmanager
def postgres(
    *, binaries: Path | None = None, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Generator[str]:
    """Give the URL of a server that is there for this block only.

    The server comes from `binaries` if given; else `$TRAX_TEST_DATABASE_URL` is given back as it is, or
    PostgreSQL 15 or newer is started from the machine, or from the `localpg` extra. It trusts every local
    user, and is quick rather than safe against a power cut unless it is `durable`.
    """
    running = os.environ.get(URL_VARIABLE)
    if running and binaries is None:
        yield running
        return
    with postgres_server(binaries=binaries, durable=durable, settings=settings) as server:
        yield server.url


@contextmanager
def postgres_server(
    *, binaries: Path | None = None, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Generator[Server]:
    """Start a server of our own, which the block may stop and start again."""
    original = find_binaries() if binaries is None else checked_binaries(binaries)
    owner = server_owner()
    folder = _unused_folder(owner)
    is_reachable = owner.can_run(original / "pg_ctl")
    placed = original if is_reachable else placed_binaries(original, folder)

    with _watched(placed / "pg_ctl", folder) as lifeline:
        folder.mkdir(mode=0o700)
        if not is_reachable:
            copy_binaries(original, placed)
        options = {"max_connections": "200", **({} if durable else QUICK), **(settings or {})}
        server = Server(placed, folder, owner, options, lifeline)
        server.create()
        yield _started(server)


@dataclass(frozen=True)
class Server:
    """A server in a folder of its own. It is `postgres_server` that removes it."""

    binaries: Path
    folder: Path
    owner: Owner
    settings: Mapping[str, str]
    lifeline: IO[bytes]
    port: int = 0

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The process that all others of a running server descend from."""
        return int((self._data / "postmaster.pid").read_text().split(maxsplit=1)[0])

    def create(self) -> None:
        """Make the files of an empty server."""
        self._log.touch()
        self.owner.take(self.folder)
        self._run(
            "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"
        )

    def start(self) -> None:
        """Start and wait until connections are accepted."""
        self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", self._log, "-o", self._options)

    def stop(self, mode: StopMode = "immediate") -> None:
        """Stop and wait for the end. `immediate` is a crash: only `durable` keeps the last commits."""
        self._run("pg_ctl", "stop", "-w", "-D", self._data, "-m", mode)

    def restart(self, mode: StopMode = "immediate") -> None:
        self.stop(mode)
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def _options(self) -> str:
        settings = {"listen_addresses": "127.0.0.1", **self.settings}
        chosen = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return shlex.join(["-p", str(self.port), "-k", str(self.folder), *chosen])

    def _run(self, program: str, *arguments: str | Path) -> None:
        # As stdin, never read, the lifeline stays open: if we are killed, the watcher waits for this program.
        # The server is not held by it: pg_ctl gives it another stdin. Output to a pipe would break with us.
        with self._log.open("ab") as log:
            status = self.owner.run(self.binaries / program, *arguments, stdin=self.lifeline, output=log)
        if status != 0:
            said = self._log.read_text(errors="replace")
            raise PostgresFailed(f"{program} ended with status {status}:\n{said}")


def free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _started(server: Server, attempts: int = 3) -> Server:
    """Start on a free port, and on another one if it was taken in the meantime."""
    server = replace(server, port=free_port())
    try:
        server.start()
    except PostgresFailed as failure:
        if attempts == 1 or PORT_TAKEN not in str(failure):
            raise
        return _started(server, attempts - 1)
    return server


@contextmanager
def _watched(pg_ctl: Path, folder: Path) -> Generator[IO[bytes]]:
    """Have a watcher clean up when the lifeline ends: with the block, or with this process if it is killed.

    The watcher runs before the folder exists, so that no moment to be killed in is left over.
    """
    with subprocess.Popen(  # noqa: S603 - a script of ours
        [sys.executable, "-I", "-S", _watch.__file__, pg_ctl, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    ) as watcher:
        lifeline = cast("IO[bytes]", watcher.stdin)
        _lifelines.add(lifeline)
        try:
            yield lifeline
        finally:
            lifeline.close()
            watcher.wait()
            _watch.clean_up(pg_ctl, folder)  # in case somebody killed the watcher


_lifelines: WeakSet[IO[bytes]] = WeakSet()


def _drop_lifelines() -> None:
    for lifeline in _lifelines:
        lifeline.close()


os.register_at_fork(after_in_child=_drop_lifelines)  # a copy of this process must not hold a server alive


def _unused_folder(owner: Owner) -> Path:
    """A new name below the temporary folder, or below /tmp if that is too deep or closed to the owner."""
    name = f"trax-postgres-{secrets.token_hex(6)}"
    usual = Path(tempfile.gettempdir())
    is_short = len(os.fsencode(usual / name / ".s.PGSQL.99999")) < SOCKET_PATH_BYTES
    return (usual if is_short and owner.can_enter(usual) else Path("/tmp")) / name  # noqa: S108
