"""Several processes of one app on one database, and what they did: by the records, and by the jobs' logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import exists, select

from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

TRAX = Path(sys.executable).with_name("trax")

APP = """
import asyncio
import os
import time

from trax import Trax

app = Trax(max_active_jobs={limit}, polling_interval={poll}, local_polling_interval={poll})

for name, most in {groups}.items():
    app.group(name, max_active_jobs=most)

log = os.open(f"ran-{{os.getpid()}}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.train
async def note(job: tuple[str, int]) -> None:
    began = time.monotonic_ns()
    for _ in range(5):
        await asyncio.sleep(0.0005)
    group, number = job
    os.write(log, f"{{group}} {{number}} {{began}} {{time.monotonic_ns()}}\\n".encode())
"""


class JobRun(NamedTuple):
    """What a job says of itself, by the clock that all processes of a machine share."""

    group: str
    number: int
    began: int
    ended: int


class AdmittedRun(NamedTuple):
    """An entry and its run, by their records."""

    entry_id: int
    metadata_id: int
    group: str
    priority: int
    queued_at: datetime
    admitted_at: datetime
    ended_at: datetime
    state: str

    @property
    def rank(self) -> tuple[int, datetime, int]:
        return -self.priority, self.queued_at, self.entry_id


class Fleet:
    """Processes that run."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def check(self) -> None:
        assert [process.poll() for process in self._processes] == [None] * len(self._processes)

    def end(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in self._processes] == [0] * len(self._processes)


@contextmanager
def running(folder: Path, url: str, commands: Iterable[str]) -> Generator[Fleet]:
    """These processes of the app; they must all be there until the block ends, and then end in peace."""
    with ExitStack() as stack:
        fleet = Fleet([stack.enter_context(_process(folder, url, command)) for command in commands])
        yield fleet
        fleet.check()
        fleet.end()


@contextmanager
def _process(folder: Path, url: str, command: str) -> Generator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TRAX_DATABASE_URL": url}
    verb, *options = command.split()
    words = [TRAX, verb, "jobs.py:app", *options]
    with (
        (folder / "said").open("ab") as said,
        subprocess.Popen(words, cwd=folder, env=environment, stdout=said, stderr=said) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def write_app(folder: Path, groups: dict[str, int], *, limit: int, poll: float) -> None:
    text = APP.format(groups=groups, limit=limit, poll=poll)
    (folder / "jobs.py").write_text(text, encoding="utf-8")


def logged(folder: Path) -> list[JobRun]:
    lines = [line.split() for file in folder.glob("ran-*") for line in file.read_text().splitlines()]
    return [JobRun(group, int(number), int(began), int(ended)) for group, number, began, ended in lines]


def recorded(connection: Connection) -> list[AdmittedRun]:
    """In the order of admission."""
    t = tables(connection)
    entry, run, group = t.work_queue, t.metadata, t.manifest_group
    columns: list[Any] = [entry.c.id, run.c.id.label("run"), group.c.name, entry.c.priority]
    columns += [entry.c.created_at, run.c.created_at.label("admitted_at"), run.c.ended_at, run.c.state]
    joined = entry.join(run, run.c.id == entry.c.metadata_id).join(group, group.c.id == run.c.group_id)
    query = select(*columns).select_from(joined).order_by(run.c.id)
    return [AdmittedRun(*row) for row in connection.execute(query)]


def has_begun(connection: Connection) -> bool:
    return connection.execute(select(tables(connection).metadata.c.id).limit(1)).first() is not None


def is_idle(connection: Connection) -> bool:
    """Whether nothing waits and nothing runs: in one statement, since one may become the other meanwhile."""
    t = tables(connection)
    waits = exists().where(t.work_queue.c.status == "queued")
    runs = exists().where(t.metadata.c.state.in_(["pending", "in_progress"]))
    return not connection.scalar(select(waits | runs))


def most_at_once(spans: Iterable[tuple[Any, Any]]) -> int:
    """The largest number of spans that share a moment; one that ends leaves its place to one that begins."""
    steps = sorted(step for begin, end in spans for step in ((begin, 1), (end, -1)))
    most = count = 0
    for _, step in steps:
        count += step
        most = max(most, count)
    return most


def most_by_group(spans: Iterable[tuple[str, Any, Any]]) -> dict[str, int]:
    grouped: defaultdict[str, list[tuple[Any, Any]]] = defaultdict(list)
    for group, begin, end in spans:
        grouped[group].append((begin, end))
    return {group: most_at_once(each) for group, each in grouped.items()}


def overtaken(admitted: Sequence[AdmittedRun], visible_at: dict[int, datetime]) -> list[tuple[int, int]]:
    """Entries that were let in although one of the same group with a better rank waited for certain.

    Cycles happen one after the other, and the moment of each is after all that it has read. So what was
    visible by the moment of one cycle was seen by the next. Within a group the better rank goes first: in an
    earlier cycle, or in the same one with a smaller id.
    """
    moments = sorted({one.admitted_at for one in admitted})
    before = dict(zip(moments[1:], moments, strict=False))
    by_group: defaultdict[str, list[AdmittedRun]] = defaultdict(list)
    for one in admitted:
        by_group[one.group].append(one)
    return [
        (first.entry_id, second.entry_id)
        for members in by_group.values()
        for first, second in combinations(members, 2)
        if second.rank < first.rank
        and (
            second.admitted_at == first.admitted_at
            or (first.admitted_at in before and visible_at[second.entry_id] <= before[first.admitted_at])
        )
    ]
