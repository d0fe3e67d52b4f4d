"""The user that a test server runs as: PostgreSQL refuses root, so root uses `nobody`."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


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
