"""An operator at the command line: commands and their output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from trax.cli import main
from trax.clock import utc_now
from trax.store import Store, migrations, workers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


ROW: Final[dict[str, Any]] = {
    "host": "box",
    "pid": 7,
    "concurrency": 4,
    "trains": "[]",
    "host_environment": "server",
    "host_instance_id": "",
}


@dataclass(frozen=True)
class CommandResult:
    code: Any
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """What stands below the header, cell by cell."""
        return [line.split("\t") for line in self.out.splitlines()[1:]]


class Operator:
    """Runs commands in this process, against one database."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *words: str) -> CommandResult:
        return self.plainly(*words, "--database-url", self.url)

    def plainly(self, *words: str) -> CommandResult:
        """Without naming the database."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        said = self._capsys.readouterr()
        code = ended.value.code
        return (
            CommandResult(code, said.out, said.err)
            if isinstance(code, int)
            else CommandResult(1, said.out, f"{code}\n")
        )

    def json(self, *words: str) -> Any:
        told = self(*words, "--json")
        assert (told.code, told.err) == (0, "")
        return json.loads(told.out)

    def ids(self, *words: str) -> Sequence[int]:
        return [record["id"] for record in self.json(*words)]


def publish(url: str, *trains: str) -> None:
    """Make known that the inputs of these trains hold no secrets, as a process does that runs no jobs."""
    row = {**ROW, "kind": "caller", "plain_fields": json.dumps(dict.fromkeys(trains))}
    store = Store(url)
    store.run(migrations.migrate)
    store.run(workers.register, row, now=utc_now())
    store.close()


def register(url: str, *trains: str, beaten_at: datetime) -> None:
    """Make a row of a worker that knows these trains, and was heard at this moment."""
    row = {**ROW, "trains": json.dumps(trains)}
    store = Store(url)
    store.run(workers.register, row, now=beaten_at)
    store.close()
