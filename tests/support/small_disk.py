"""A disk that can be full for a while."""

from __future__ import annotations

import errno
import resource
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

SIZE = "32m"


@contextmanager
def small_disk(folder: Path) -> Generator[Callable[[int], AbstractContextManager[None]]]:
    """Mount a small file system on the folder; what is yielded fills it while a process runs.

    Whoever may not mount limits how large the files of that process may be: it cannot write either.
    """
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False)
    if mounted.returncode != 0:
        yield _limit
        return
    try:
        yield lambda _pid: _fill(folder / "filler")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def _fill(file: Path) -> Generator[None]:
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError as full:
            assert full.errno == errno.ENOSPC, full  # noqa: PT017 - this is how it ends
    yield
    file.unlink()


@contextmanager
def _limit(pid: int) -> Generator[None]:
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
