"""Atomic messages for Celery's filesystem broker.

Celery's driver creates a message file and then fills it. A worker that reads it in between gets an empty
message and crashes. So messages are written to a staging folder and then moved.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

DRIVER: Final = "filesystem"
OUT: Final = "data_folder_out"
DEFAULT_OUT: Final = "data_out"


class Outbox:
    """The staging folder and the target folder of messages; other brokers need none."""

    def __init__(self, options: Mapping[str, Any], staging_folder: Path | None = None) -> None:
        self._folder = Path(options.get(OUT, DEFAULT_OUT))
        self._aside = staging_folder
        self.options = dict(options) if staging_folder is None else {**options, OUT: str(staging_folder)}

    def deliver(self) -> None:
        """Move written messages to the target folder. Not called if writing failed."""
        for message in sorted(self._aside.iterdir()) if self._aside else ():
            message.replace(self._folder / message.name)


@contextmanager
def open_outbox(driver: str, options: Mapping[str, Any]) -> Generator[Outbox]:
    """An outbox: connection options for writing, and `deliver` to publish the messages."""
    if driver != DRIVER:
        yield Outbox(options)
        return
    folder = options.get(OUT, DEFAULT_OUT)
    with TemporaryDirectory(prefix=".trax-", dir=folder) as aside:  # inside, so that a move is a rename
        yield Outbox(options, Path(aside))
