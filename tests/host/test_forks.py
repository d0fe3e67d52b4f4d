"""An app that was used before a fork works in parent and child, and they share no connection."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.support.forking import fork
from tests.support.waiting import until

from trax import Trax
from trax.errors import StoreError
from trax.store.listen import open_connection
from trax.store.store import OPEN_DIRECT_AFTER

if TYPE_CHECKING:
    from collections.abc import Generator

CALLS = 20
OTHERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def new_app(url: str, **settings: Any) -> Trax:
    app = Trax(url, **settings)

    @app.train
    async def greet(name: str) -> str:
        return f"{name} in {os.getpid()}"

    @app.train
    def write(name: str) -> str:
        return name

    return app


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    with closing(new_app(url, polling_interval=0.1, local_polling_interval=0.1)) as app:
        yield app


def queue_blocking(app: Trax, who: str) -> list[str]:
    names = [f"{who} {number}" for number in range(CALLS)]
    return [str(app.sync.queue("greet", name).input) for name in names]


async def queue(app: Trax, who: str) -> list[str]:
    await warm_up(app, who)
    names = [f"{who} {number}" for number in range(CALLS)]
    return [str(entry.input) for entry in await asyncio.gather(*(app.queue("greet", name) for name in names))]


async def warm_up(app: Trax, who: str) -> None:
    for number in range(OPEN_DIRECT_AFTER):
        await app.queue("greet", f"{who} warm {number}")


def inputs(app: Trax) -> list[str]:
    return sorted(str(entry.input) for entry in asyncio.run(app.work_queue.list(limit=1000)))


def test_children_and_parent_queue_at_the_same_time(app: Trax) -> None:
    before = queue_blocking(app, "before")

    children = [fork(lambda who=who: queue_blocking(app, who)) for who in ("one", "two", "three")]
    mine = queue_blocking(app, "parent")
    theirs = [name for child in children for name in child.result()]

    assert inputs(app) == sorted([*before, *mine, *theirs])


def test_a_child_of_an_event_loop_has_one_of_its_own(app: Trax) -> None:
    async def main() -> list[str]:
        before = await queue(app, "before")
        child = fork(lambda: asyncio.run(queue(app, "child")))
        mine = await queue(app, "parent")
        return [*before, *mine, *await asyncio.to_thread(child.result)]

    queued = asyncio.run(main())

    assert len(queued) == 3 * CALLS
    assert set(queued) < set(inputs(app))


def test_no_session_of_the_parent_ends_with_a_child(postgres_url: str) -> None:
    async def main(app: Trax) -> tuple[set[Any], set[Any]]:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            async with app:
                await queue(app, "before")
                before = set(admin.execute(OTHERS).fetchall())
                child = fork(leave)
                await asyncio.to_thread(child.result)
                await queue(app, "after")
                return before, set(admin.execute(OTHERS).fetchall())

    def leave() -> None:
        """Use the app, close it, and drop all that was inherited."""
        asyncio.run(queue(app, "child"))
        app.close()
        gc.collect()

    app = new_app(postgres_url)
    before, after = asyncio.run(main(app))

    assert before <= after


def test_a_connection_closed_by_a_child_still_works_in_the_parent(postgres_url: str) -> None:
    with open_connection(postgres_url) as connection:
        fork(connection.close).result()

        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_a_child_runs_no_role_of_its_parent_and_wakes_it(url: str) -> None:
    is_postgresql = url.startswith("postgresql")
    app = new_app(url, polling_interval=3600 if is_postgresql else 0.1, local_polling_interval=3600)

    def in_child() -> tuple[bool, int, int]:
        assert app.context.heartbeat.last_heartbeat_at(worker_id) is None
        return app.is_running, len(app.loops), app.sync.queue("greet", "child").id

    async def main() -> Any:
        nonlocal worker_id
        async with asyncio.timeout(60), app:
            [worker] = await app.workers.list()
            worker_id = worker.worker.id
            for entry in await app.queue_many("greet", map(str, range(CALLS))):
                await entry.wait()
            is_running, loops, entry_id = await asyncio.to_thread(lambda: fork(in_child).result())
            ended = await (await app.work_queue.get(entry_id)).wait()
            return is_running, loops, ended.output

    worker_id = 0
    is_running, loops, output = asyncio.run(main())

    assert (is_running, loops, output) == (False, 0, f"child in {os.getpid()}")


def test_a_child_can_start_a_role_of_its_own(app: Trax) -> None:
    async def run_in_child() -> Any:
        async with asyncio.timeout(60), app:
            entry = await app.queue("greet", "Ada")
            return (await entry.wait()).output, await app.run(app.trains.get("write"), "Bob")

    async def main() -> Any:
        async with app:
            await warm_up(app, "parent")
            await (await app.queue("greet", "last")).wait()
            child = fork(lambda: (os.getpid(), asyncio.run(run_in_child())))
        return child.result()

    pid, (greeted, written) = asyncio.run(main())

    assert (greeted, written) == (f"Ada in {pid}", "Bob")


def test_runs_of_a_child_belong_to_a_row_that_the_child_renews(app: Trax) -> None:
    def run_in_child() -> tuple[int | None, bool]:
        app.sync.run(app.trains.get("write"), "child")
        thread = app.context.heartbeat._thread  # pyright: ignore[reportPrivateUsage]
        return app.context.heartbeat.caller_id, thread is not None and thread.is_alive()

    app.sync.run(app.trains.get("write"), "parent")
    theirs, is_renewed = fork(run_in_child).result()
    [of_child, of_parent] = asyncio.run(app.executions.list(train="write"))

    assert is_renewed
    assert (of_child.worker, of_parent.worker) == (theirs, app.context.heartbeat.caller_id)
    assert theirs != app.context.heartbeat.caller_id


def test_a_file_that_the_parent_closes_keeps_what_a_child_writes(tmp_path: Any) -> None:
    app = new_app(f"sqlite:///{tmp_path}/trax.db")
    queue_blocking(app, "before")
    reader, writer = os.pipe()

    def write_after_the_parent_left() -> list[str]:
        first = queue_blocking(app, "first")
        os.read(reader, 1)
        return [*first, *queue_blocking(app, "second")]

    child = fork(write_after_the_parent_left)
    until(lambda: len(inputs(app)) >= 2 * CALLS)
    app.close()
    os.write(writer, b"!")
    written = child.result()

    assert set(written) < set(inputs(app))
    app.close()


def test_memory_belongs_to_the_process_that_opened_it() -> None:
    app = new_app("memory://")
    app.sync.queue("greet", "parent")

    def queue_in_child() -> str:
        try:
            app.sync.queue("greet", "child")
        except StoreError as error:
            return str(error)
        return "queued"

    assert "belongs to the parent; use a file" in fork(queue_in_child).result()
    assert inputs(app) == ["parent"]
    app.close()


ENDS_NORMALLY = """
import asyncio, os, sys
import psycopg
from trax import Trax

app = Trax(sys.argv[1])

@app.train
async def greet(name: str) -> None: ...

async def queue(who):
    for number in range(20):
        await app.queue("greet", f"{who} {number}")

admin = psycopg.connect(sys.argv[1], autocommit=True)
loop = asyncio.new_event_loop()
loop.run_until_complete(queue("before"))
before = set(admin.execute(sys.argv[2]).fetchall())
child = os.fork()
if child:
    os.waitpid(child, 0)
    loop.run_until_complete(queue("after"))
    print(bool(before), before <= set(admin.execute(sys.argv[2]).fetchall()))
"""  # the child goes to the end of the interpreter, which finalizes all objects


def test_no_session_of_the_parent_ends_with_the_interpreter_of_a_child(postgres_url: str) -> None:
    command = [sys.executable, "-c", ENDS_NORMALLY, postgres_url, OTHERS]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.stdout.split() == ["True", "True"], ended
