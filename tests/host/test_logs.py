from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import until

from trax import Trax, current
from trax.errors import DefinitionError
from trax.records import LogLevel, State
from trax.store.runs import run_log
from trax.testing import Harness
from trax.worker import capture

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from trax.records import LogLine

logger = logging.getLogger("tests.etl")


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url)
    yield made
    made.close()


async def messages(app: Trax) -> list[str]:
    """What the newest run logged."""
    return [line.message for line in await lines(app)]


async def lines(app: Trax) -> Sequence[LogLine]:
    (newest,) = await app.executions.list(limit=1)
    return await app.executions.logs(newest.id)


@contextmanager
def printing(logger: logging.Logger, level: int) -> Generator[list[str]]:
    """A handler of the user's own, on a logger with a level."""
    printed: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: printed.append(record.getMessage())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield printed
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


async def test_log_lines_of_a_run_are_kept_with_its_record(app: Trax) -> None:
    @app.train
    async def work(number: int) -> None:
        logger.info("number %s", number)
        logger.debug("too quiet")

    logger.warning("outside a run")
    await app.run(work, 7)

    (line,) = await lines(app)
    (run,) = await app.executions.list()
    assert run.started_at
    assert run.ended_at
    assert (line.metadata_id, line.level, line.logger) == (run.id, LogLevel.INFORMATION, "tests.etl")
    assert line.message == "number 7"
    assert run.started_at <= line.created_at <= run.ended_at


async def test_a_queued_run_has_its_lines_as_soon_as_it_has_ended(app: Trax) -> None:
    @app.train
    def work(number: int) -> None:  # in a thread
        logger.info("number %s", number)

    async with Harness(app) as h:
        await app.queue_many(work, [1, 2, 3])
        await h.run_until_idle()

        runs = await app.executions.list()
        assert [run.state for run in runs] == [State.COMPLETED] * 3
        for run in runs:
            (line,) = await app.executions.logs(run.id)
            assert line.message == f"number {run.input}"
            assert timedelta() <= h.now - line.created_at < timedelta(minutes=1)


async def test_many_lines_are_read_page_by_page(app: Trax) -> None:
    @app.train
    async def work(count: int) -> None:
        for number in range(count):
            logger.info("line %s", number)

    await app.run(work, 5)
    (run,) = await app.executions.list()

    first = await app.executions.logs(run.id, limit=3)
    rest = await app.executions.logs(run.id, after=first[-1].id)

    assert [line.message for line in (*first, *rest)] == [f"line {number}" for number in range(5)]
    assert len(first) == 3
    assert await app.executions.logs(run.id, after=rest[-1].id) == []
    with pytest.raises(DefinitionError, match="limit must be"):
        await app.executions.logs(run.id, limit=0)


async def test_a_nested_run_has_lines_of_its_own(app: Trax) -> None:
    @app.train
    async def inner(_: int) -> None:
        logger.info("inside")

    @app.train
    async def outer(_: int) -> None:
        logger.info("before")
        await app.run(inner, 1)
        logger.info("after")

    await app.run(outer, 1)

    child, parent = await app.executions.list()
    assert [line.message for line in await app.executions.logs(child.id)] == ["inside"]
    assert [line.message for line in await app.executions.logs(parent.id)] == ["before", "after"]


async def test_two_apps_do_not_capture_lines_of_each_other(app: Trax) -> None:
    other = Trax("memory://")

    @other.train
    async def inner(_: int) -> None:
        logger.info("inside")

    @app.train
    async def outer(_: int) -> None:
        await other.run(inner, 1)
        logger.info("outside")

    await app.run(outer, 1)

    assert (await messages(app), await messages(other)) == (["outside"], ["inside"])
    other.close()


async def test_a_logged_exception_is_kept_with_its_traceback(app: Trax) -> None:
    @app.train
    async def work(_: int) -> None:
        try:
            _ = dict[str, int]()["no such table"]
        except KeyError:
            logger.exception("could not load")

    await app.run(work, 1)

    (line,) = await lines(app)
    assert (line.level, line.message) == (LogLevel.ERROR, "could not load")
    assert line.exception == "KeyError: 'no such table'"
    assert '["no such table"]' in (line.stack_trace or "")


async def test_long_and_misfitting_lines_are_kept_as_far_as_they_can_be(app: Trax) -> None:
    @app.train
    async def work(_: int) -> None:
        logger.info("x" * 10_000)
        logger.info("one %s, two %s", *[1])
        logger.info("raw %s", "\x00")

    await app.run(work, 1)

    long, misfit, raw = await messages(app)
    assert long == "x" * 4000
    assert misfit == "one %s, two %s (invalid log arguments)"
    assert raw == "raw \N{REPLACEMENT CHARACTER}"


async def test_loggers_can_be_excluded_and_those_of_the_database_always_are(url: str) -> None:
    app = Trax(url, capture_logs_except=("noisy.*", "exact"))

    @app.train
    async def work(_: int) -> None:
        for name in ("noisy.client", "exact", "exact.not", "sqlalchemy.engine", "trax.store.store"):
            logging.getLogger(name).warning("from %s", name)

    await app.run(work, 1)

    assert await messages(app) == ["from exact.not"]
    app.close()


@pytest.mark.parametrize(
    ("level", "kept"), [("ERROR", ["loud"]), ("debug", ["quiet", "loud"]), (None, list[str]())]
)
async def test_the_level_is_a_setting(level: Any, kept: list[str]) -> None:
    app = Trax("memory://", capture_logs=level)

    @app.train
    async def work(_: int) -> None:
        logger.debug("quiet")
        logger.error("loud")

    await app.run(work, 1)

    assert await messages(app) == kept
    app.close()


async def test_too_many_lines_are_dropped_and_counted(app: Trax, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MOST_WAITING", 3)

    @app.train
    async def work(_: int) -> None:
        for number in range(10):
            logger.info("%s", number)

    async with Harness(app):  # nothing is written before the end
        await app.run(work, 1)

        *kept, last = await messages(app)
        assert kept == ["7", "8", "9"]
        assert last.startswith("7 log lines were dropped")


async def test_lines_not_written_with_a_result_are_written_later(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Trax(url, heartbeat_interval=0.1, worker_lost_after=0.2)

    @app.train
    async def work(number: int) -> None:
        logger.info("number %s", number)

    async with Harness(app):
        with monkeypatch.context() as patch:
            patch.setattr(run_log, "add", _broken)
            with pytest.raises(OSError, match="no disk"):
                await app.run(work, 1)
        await app.run(work, 2)

        second, first = await app.executions.list()
        assert [line.message for line in await app.executions.logs(first.id)] == ["number 1"]
        assert [line.message for line in await app.executions.logs(second.id)] == ["number 2"]


def _broken(*_: Any) -> None:
    raise OSError("no disk")


async def test_lines_of_a_run_in_progress_are_visible(app: Trax) -> None:
    done = asyncio.Event()

    @app.train
    async def work(_: int) -> None:
        logger.info("begun")
        await done.wait()

    running = asyncio.create_task(app.run(work, 1))
    store = await app.context.store.open()
    await asyncio.to_thread(
        until, lambda: [one.message for one in store.read(run_log.load_by_run, 1)] == ["begun"]
    )

    done.set()
    await running


async def test_other_handlers_print_what_they_printed_before() -> None:
    app = Trax("memory://")
    chatty = logging.getLogger("tests.chatty")

    @app.train
    async def work(_: int) -> None:
        logger.info("quiet")
        logger.warning("loud")
        chatty.debug("wanted")

    with printing(logging.getLogger(), logging.WARNING) as printed:
        chatty.setLevel(logging.DEBUG)
        await app.run(work, 1)
        app.close()
        chatty.setLevel(logging.NOTSET)

        assert logging.getLogger().level == logging.WARNING

    assert printed == ["loud", "wanted"]


async def test_without_any_handler_warnings_still_reach_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    app = Trax("memory://")

    @app.train
    async def work(_: int) -> None:
        logger.info("quiet")
        logger.warning("loud")

    await app.run(work, 1)
    kept = await messages(app)
    app.close()

    assert kept == ["quiet", "loud"]
    assert capsys.readouterr().err == "loud\n"


async def test_a_closed_app_captures_no_lines(app: Trax) -> None:
    @app.train
    async def work(_: int) -> None:
        assert current()

    before = list(logging.getLogger().handlers)
    await app.run(work, 1)
    assert len(logging.getLogger().handlers) == len(before) + 1

    app.close()

    assert logging.getLogger().handlers == before
