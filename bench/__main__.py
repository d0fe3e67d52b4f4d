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
    "train": "what a train costs over awaiting its functions",
    "store": "entries in one call and one by one, beside the bare driver",
    "schedules": "a cycle of the manager among many manifests, and seeding",
    "drain": "working off a full queue, beside PgQueuer and the bare SQL (--jobs, --rounds)",
    "enqueue": "jobs coming in, many a call and one a call, beside PgQueuer (--rounds)",
    "pickup": "from the call to the start of the job on an idle system, beside PgQueuer (--rounds)",
    "load": "how late jobs start at a steady rate, and beside a session that holds a snapshot (--only)",
    "peers": "everyone beside everyone: drain, enqueue, pickup (--jobs, --rounds, --only)",
    "public": "chaos and pressure as in the public queue benchmark, beside PgQueuer (--only, scenarios too)",
    "plans": "which pages and indexes the statements need beside 10 M records; counted, not timed",
    "cost": "what a job and an idle server cost PostgreSQL; counted, not timed; writes docs/cost.md",
    "cleanup": "whether history stays small while jobs end at 5,000 a second (--minutes)",
    "admission": "one cycle of the gate behind a flooded group, from 1 k to 1 M entries",
    "engines": "handing over to others, engine by engine, beside each of them used bare (--rounds)",
    "pages": "every page beside 1 M executions, in a browser, and watched by 50 people (--executions)",
    "idle": "memory, processor and transactions of a process with nothing to do",
}
REPORT = "report"
"""Measures nothing: it writes the page from what was measured last."""


def main() -> None:
    usual = Options()
    listed = BENCHES | {REPORT: "write docs/benchmarks.md from the figures of the last runs"}
    parser = ArgumentParser(
        prog="python -m bench",
        description="\n".join(f"{name:<11}{what}" for name, what in listed.items()),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run; all if none is named")
    parser.add_argument("--jobs", type=int, default=usual.jobs, help="how many to drain (%(default)s)")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="how often (%(default)s)")
    parser.add_argument("--only", default="", metavar="NAMES", help="whom of load and peers, with commas")
    parser.add_argument("--executions", type=int, help="how many lie beside the pages, on both databases")
    parser.add_argument("--minutes", type=float, help="how long cleanup lasts (30)")
    parser.add_argument("--quick", action="store_true", help="only see that it works; means nothing")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in listed]
    if unknown:
        parser.error(f"there is no bench {', '.join(unknown)}; there are {', '.join(listed)}")
    options = Options(
        jobs=given.jobs,
        rounds=given.rounds,
        executions=given.executions,
        only=tuple(name for name in given.only.lower().split(",") if name),
        quick=given.quick,
        minutes=given.minutes,
    )
    if options.quick:
        print("quick: only to see that everything works; the figures mean nothing")
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
