"""A wheel of this project, and environments of their own to install it into."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

PROJECT = Path(__file__).parent.parent.parent
REQUIREMENTS = PROJECT / "requirements"


def built(target: str, folder: Path, *, source: Path = PROJECT) -> Path:
    """A wheel or an sdist, made with what is installed here and without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


def unpacked(sdist: Path, folder: Path) -> Path:
    how: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, **how)  # noqa: S202 - made here just before
    (source,) = folder.iterdir()
    return source


class Environment:
    """An empty environment, with the core and nothing else of ours, and the wheel on top."""

    def __init__(self, folder: Path, wheel: Path, *extras: str, compiles: bool = False) -> None:
        self.bin = folder / "bin"
        self._uv("venv", "--python", sys.executable, folder)
        how = [
            "--link-mode",
            "symlink",
            "--python",
            self.bin / "python",
            *(["--compile-bytecode"] if compiles else []),
        ]
        self._install("sync", "--require-hashes", *how, REQUIREMENTS / "core.txt")
        name = f"{wheel}[{','.join(extras)}]"
        self._install("install", *how, "--constraint", REQUIREMENTS / "dev.txt", name)

    def python(self, program: str, folder: Path) -> str:
        """What a program prints, run outside the repository; a warning is an error."""
        return self._output([self.bin / "python", "-W", "error", "-I", "-c", program], folder)

    def trax(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return self._run([self.bin / "trax", *arguments], folder)

    def _install(self, verb: str, *arguments: str | Path) -> None:
        """From what was downloaded before, if all of it was; else from the registry.

        A proxy on the way to it may be known to the certificate store of the system alone.
        """
        for how in ("--offline", "--no-offline"):
            with suppress(subprocess.CalledProcessError):
                self._uv("pip", verb, how, *arguments)
                return
        self._uv("pip", verb, "--system-certs", *arguments)

    def _uv(self, *arguments: str | Path) -> None:
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "--quiet", *arguments], check=True, capture_output=True)

    def _output(self, command: Sequence[Any], folder: Path) -> str:
        ended = self._run(command, folder)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    def _run(self, command: Sequence[Any], folder: Path) -> subprocess.CompletedProcess[str]:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("TRAX_", "PYTHON"))
        }
        return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
