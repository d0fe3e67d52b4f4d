"""Who a test server runs as: PostgreSQL refuses root, so `nobody` takes its place."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Owner(NamedTuple):
    """The user and group that own a server; both None for the user we already are."""

    uid: int | None = None
    gid: int | None = None

    def run(self, *command: str | Path, stdin: IO[bytes] | int, output: IO[bytes] | int) -> int:
        """Run to the end and give the exit status, whatever folder, settings and terminal we have.

        An interrupt ends our waiting, not the program: a half-made server would leave shared memory behind.
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

    def take(self, folder: Path) -> None:
        """Become the owner of everything in the folder."""
        if self.uid is None or self.gid is None:
            return
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_owner() -> Owner:
    if os.geteuid() != 0:
        return Owner()
    nobody = pwd.getpwnam("nobody")
    return Owner(nobody.pw_uid, nobody.pw_gid)


def _neutral_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}
