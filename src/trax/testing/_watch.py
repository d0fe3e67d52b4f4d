"""Stop and remove a test server. As a script: wait for the owning process to end, then do so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def clean_up(pg_ctl: Path, folder: Path) -> None:
    """Stop the server below `folder`, if one runs, and remove the folder. Safe to repeat."""
    if (folder / "data" / "postmaster.pid").exists():
        _stop(pg_ctl, folder)
    shutil.rmtree(folder, ignore_errors=True)


def _stop(pg_ctl: Path, folder: Path) -> None:
    owner = folder.stat()
    is_root = os.geteuid() == 0
    subprocess.run(  # noqa: S603 - the program that started the server
        [pg_ctl, "stop", "-w", "-m", "immediate", "-D", folder / "data"],
        user=owner.st_uid if is_root else None,
        group=owner.st_gid if is_root else None,
        extra_groups=[] if is_root else None,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


if __name__ == "__main__":
    sys.stdin.buffer.read()
    clean_up(Path(sys.argv[1]), Path(sys.argv[2]))
