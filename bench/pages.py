"""The cost of the dashboard with a long history: every page, the lists of the API, and viewers."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bench.browser import seconds_to_use
from bench.children import child
from bench.databases import database, vacuum_and_checkpoint
from bench.figures import goal
from bench.history import FAMOUS, Size, fill
from bench.options import Options
from bench.processes import PROC
from bench.viewers import VIEWERS, cost
from trax.store import Connection, Store, status
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GOAL_MILLISECONDS: Final = 100
GOAL_KILOBYTES: Final = 60
GOAL_SECONDS: Final = 0.5
GOAL_SHARE: Final = 0.1
WIDEST: Final = 46
PAGES: Final = (
    "/",
    "/?by=hour",
    "/trains",
    "/trains/train-10",
    "/groups",
    "/groups/group-104",
    "/manifests",
    "/manifests?text=99",
    "/manifests?enabled=paused&train=train-12",
    "/manifests?group=group-104",
    f"/manifests/{FAMOUS}",
    "/queue",
    "/queue?status=queued",
    "/queue?status=queued&group=group-104",
    "/queue?train=nobody",
    "/queue/{entry}",
    "/executions",
    "/executions?state=failed",
    "/executions?state=completed&group=group-104",
    "/executions?train=train-12",
    "/executions?within=1+day&state=failed",
    f"/executions?manifest={FAMOUS}",
    "/executions?external_id=abcdef",
    "/executions?before=5000",
    "/executions/{failed}",
    "/dead-letters",
    "/dead-letters?status=",
    "/dead-letters/1",
    "/workers",
    "/logs",
    "/logs?text=nowhere",
    "/logs?level=error",
    "/audit",
    "/audit?action=groups.update",
    "/settings",
)
LISTS: Final = (
    "/api/v1/executions?total=true",
    "/api/v1/executions?state=failed&total=true",
    "/api/v1/queue?status=queued&total=true",
    "/api/v1/manifests?total=true",
    "/api/v1/groups",
    "/api/v1/dead-letters",
    "/api/v1/dead-letters/groups",
    "/api/v1/logs",
    "/api/v1/audit",
    "/api/v1/workers",
    "/api/v1/trains",
    "/api/v1/stats/home",
    "/health",
    "/metrics",
)
LONG: Final = Size.beside(1_000_000)
TENTH: Final = Size.beside(100_000)
SHORT: Final = Size.beside(5_000)
OFTEN: Final[dict[str, Callable[[Connection], Any]]] = {
    "what has changed": status.read_change_marks,
    "what is measured": lambda connection: status.load_gauges(
        connection, now=datetime.now(UTC), totals_until=None
    ),
}
"""The reads that are repeated every few seconds, for viewers and by a monitor."""


def main(options: Options) -> None:
    sizes = (SHORT, SHORT) if options.quick else (TENTH, LONG)
    if options.executions is not None:
        sizes = (Size.beside(options.executions),) * 2
    print(f"pages: the dashboard with a long history, each URL requested {options.sized(7, 1)} times")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'trax.db'}"
        _fill(url, sizes[0])
        _measure("SQLite", url, sizes[0], options)
    with postgres(durable=True) as server, database(server) as url:
        _fill(url, sizes[1])
        vacuum_and_checkpoint(url)
        _measure("PostgreSQL", url, sizes[1], options)


def _fill(url: str, size: Size) -> None:
    store = Store(url)
    store.open()
    fill(store, size)
    store.close()


def _measure(name: str, url: str, size: Size, options: Options) -> None:
    print(f"  {name}: {size.runs:,} executions, {size.manifests:,} manifests, {size.queued:,} queued entries")
    environment = {"TRAX_DATABASE_URL": url, "TRAX_WEB_EVENT_STREAMS_PER_VISITOR": str(VIEWERS)}
    with child(Path(sys.executable), "bench.page_server", environment=environment) as server:
        address, pid = server.hear("address"), server.hear("pid")
        known = {"entry": size.queued, "failed": size.runs // 100 * 50 + 7}
        rounds = options.sized(7, 1)
        _check_pages(address, [path.format(**known) for path in PAGES], rounds)
        _request_all(address, LISTS, rounds)
        _read_often(url, rounds)
        _open_in_browser(address, rounds)
        _watch(address, url, pid, options)


def _check_pages(address: str, paths: Sequence[str], rounds: int) -> None:
    slowest, largest = _request_all(address, paths, rounds)
    met = slowest <= GOAL_MILLISECONDS
    goal("the slowest page", f"{slowest:.0f} ms", f"at most {GOAL_MILLISECONDS} ms", met=met)
    met = largest <= GOAL_KILOBYTES
    goal("the largest page", f"{largest:.0f} KB", f"at most {GOAL_KILOBYTES} KB", met=met)


def _request_all(address: str, paths: Sequence[str], rounds: int) -> tuple[float, float]:
    """The median time of the slowest URL, and the size of the largest response."""
    print(f"  {'':<{WIDEST}}{'median ms':>10}{'worst ms':>10}{'KB':>8}")
    medians: list[float] = []
    sizes: list[float] = []
    for path in paths:
        times, kilobytes = _times(address, path, rounds)
        print(f"  {path:<{WIDEST}}{median(times):>10.1f}{max(times):>10.1f}{kilobytes:>8.1f}")
        medians.append(median(times))
        sizes.append(kilobytes)
    return max(medians), max(sizes)


def _times(address: str, path: str, rounds: int) -> tuple[list[float], float]:
    """The milliseconds of each round after the first, which is a warm-up, and the size of the response."""
    at = urlsplit(address)
    connection = HTTPConnection(at.hostname or "", at.port)
    times: list[float] = []
    body = b""
    for _ in range(rounds + 1):
        started = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        times.append((time.perf_counter() - started) * 1000)
        assert answer.status == HTTPStatus.OK, f"{path} responded {answer.status}"
    connection.close()
    return times[1:], len(body) / 1000


def _read_often(url: str, rounds: int) -> None:
    store = Store(url)
    for what, question in OFTEN.items():
        times: list[float] = []
        for _ in range(rounds + 1):
            started = time.perf_counter()
            store.read(question)
            times.append((time.perf_counter() - started) * 1000)
        took = median(times[1:])
        goal(what, f"{took:.1f} ms", f"at most {GOAL_MILLISECONDS} ms", met=took <= GOAL_MILLISECONDS)
    store.close()


def _open_in_browser(address: str, rounds: int) -> None:
    times = seconds_to_use(address, rounds)
    if not times:
        print("  (the time in a browser is not measured: Chromium is not installed)")
        return
    usable = median(times)
    goal("home in Chromium", f"{usable:.2f} s", f"below {GOAL_SECONDS} s", met=usable < GOAL_SECONDS)


def _watch(address: str, url: str, pid: int, options: Options) -> None:
    if not PROC.is_dir():
        print("  (processor time is not measured: this system has no /proc)")
        return
    for what, busy in (("while nothing changes", False), ("while much changes", True)):
        settle_seconds, seconds = options.sized(6, 1), options.sized(20, 1)
        using = cost(address, url, [pid], settle_seconds=settle_seconds, seconds=seconds, busy=busy)
        share = asyncio.run(using)
        met = share < GOAL_SHARE
        goal(f"{VIEWERS} viewers {what}", f"{share:.1%} of a core", f"below {GOAL_SHARE:.0%}", met=met)


if __name__ == "__main__":
    main(Options())
