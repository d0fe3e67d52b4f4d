"""A folder for Celery's broker: what is put into it is whole from its first moment.

Celery's driver makes a message under its last name and fills it after that. A worker that looks in between
reads a message without a word in it, and ends on it. So ours are written aside and then moved in.
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
OUT_UNLESS_SAID: Final = "data_out"


class Outbox:
    """Where messages are written, and where they are to be; nothing is to be moved with other brokers."""

    def __init__(self, options: Mapping[str, Any], aside: Path | None = None) -> None:
        self._folder = Path(options.get(OUT, OUT_UNLESS_SAID))
        self._aside = aside
        self.options = dict(options) if aside is None else {**options, OUT: str(aside)}

    def deliver(self) -> None:
        """Let everybody see what has been written; not called for a message that could not be."""
        for message in sorted(self._aside.iterdir()) if self._aside else ():
            message.replace(self._folder / message.name)


@contextmanager
def outbox(driver: str, options: Mapping[str, Any]) -> Generator[Outbox]:
    """The options of a connection to write with, and what makes its messages visible."""
    if driver != DRIVER:
        yield Outbox(options)
        return
    folder = options.get(OUT, OUT_UNLESS_SAID)
    with TemporaryDirectory(prefix=".trax-", dir=folder) as aside:  # in it, or moving might be copying
        yield Outbox(options, Path(aside))
