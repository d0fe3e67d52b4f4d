"""Run the benchmarks: all of them, or those named (`make bench ARGS="drain --jobs 200000"`)."""

from __future__ import annotations

import importlib
import os
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter

from bench.options import Options
from trax.testing import postgres
from trax.testing.postgres import URL_VARIABLE

BENCHES = {
    "train": "overhead of a train compared with awaiting its functions directly",
    "store": "writing entries in one call and one by one, compared with the bare driver",
    "schedules": "one manager cycle with many manifests, and seeding",
    "drain": "draining a full queue, compared with PgQueuer and bare SQL (--jobs, --rounds)",
    "enqueue": "enqueueing jobs, many per call and one per call, compared with PgQueuer (--rounds)",
    "pickup": "from the call to the start of the job on an idle system, compared with PgQueuer (--rounds)",
    "load": "how late jobs start at a steady rate, also while a session holds a snapshot (--only)",
    "peers": "all systems compared: drain, enqueue, pickup (--jobs, --rounds, --only)",
    "public": "scenarios of the public queue benchmark, with PgQueuer (--only, also for scenarios)",
    "plans": "pages and indexes that statements use in a database of 10 M records; counted, not timed",
    "cost": "what a job and an idle server cost PostgreSQL; counted, not timed; writes reference/cost.md",
    "cleanup": "whether history stays small while jobs end at 5,000 a second (--minutes)",
    "admission": "one dispatch cycle with a large backlog of a full group, from 1 k to 1 M entries",
    "engines": "handing runs over to each engine, compared with the engine used without Trax (--rounds)",
    "pages": "every dashboard page with 1 M executions, in a browser, and with 50 viewers (--executions)",
    "idle": "memory, processor time and transactions of an idle process",
}
REPORT = "report"
"""Measures nothing: it writes the page from the latest figures."""


def main() -> None:
    usual = Options()
    listed = BENCHES | {REPORT: "write docs/reference/benchmarks.md from the latest figures"}
    parser = ArgumentParser(
        prog="python -m bench",
        description="\n".join(f"{name:<11}{what}" for name, what in listed.items()),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; default: all")
    parser.add_argument(
        "--jobs", type=int, default=usual.jobs, help="number of jobs to drain (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=usual.rounds, help="number of rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="NAMES",
        help="systems to measure in load, public and peers, separated by commas",
    )
    parser.add_argument(
        "--executions", type=int, help="number of executions in the database for pages, on both databases"
    )
    parser.add_argument("--minutes", type=float, help="duration of cleanup in minutes (default: 30)")
    parser.add_argument(
        "--quick", action="store_true", help="check that everything works; the figures mean nothing"
    )
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in listed]
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; expected one of {', '.join(listed)}")
    options = Options(
        jobs=given.jobs,
        rounds=given.rounds,
        executions=given.executions,
        only=tuple(name for name in given.only.lower().split(",") if name),
        quick=given.quick,
        minutes=given.minutes,
    )
    if options.quick:
        print("quick: this only checks that everything works; the figures mean nothing")
    names = given.names or list(BENCHES)
    if names == [REPORT]:
        run(names, options)
        return
    with postgres(durable=True) as server:  # one for all of them
        os.environ[URL_VARIABLE] = server
        run(names, options)


def run(names: list[str], options: Options) -> None:
    for name in names:
        started = time.monotonic()
        importlib.import_module(f"bench.{name}").main(options)
        print(f"  ({name} took {time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
