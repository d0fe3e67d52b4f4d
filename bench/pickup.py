"""The time from the call that queues a job to its start on an idle system; and PgQueuer's."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from bench.contenders import PGQUEUER, TRAX, available
from bench.figures import Sheet, percentile, row
from bench.options import Options
from bench.runner import pick_up
from bench.servers import Servers

WIDTHS: Final = (14, 14)


def main(options: Options) -> None:
    jobs, rounds = options.sized(100, 5), options.sized(options.rounds, 1)
    print(
        f"pickup: from the call to the start of the job in another process, {rounds} x {jobs} jobs one by one"
    )
    sheet = Sheet("pickup", options)
    times: dict[str, list[float]] = defaultdict(list)
    contenders = available((TRAX, PGQUEUER))
    with Servers() as servers:
        for _ in range(rounds):
            for contender in contenders:
                times[contender.name] += pick_up(servers, contender, jobs)
        sheet.versions |= servers.versions
    figures = {
        name: {"p50": percentile(each, 0.5), "p99": percentile(each, 0.99)} for name, each in times.items()
    }
    row("", "p50", "p99", widths=WIDTHS)
    for name, figure in figures.items():
        row(name, f"{figure['p50']:.1f} ms", f"{figure['p99']:.1f} ms", widths=WIDTHS)
    if theirs := figures.get(PGQUEUER.name):
        add_pickup_goal(sheet, figures[TRAX.name]["p50"], theirs["p50"])
    sheet.figures = dict(figures)
    sheet.save()


def add_pickup_goal(sheet: Sheet, ours: float, theirs: float) -> None:
    sheet.goal_at_most("pickup p50, beside PgQueuer", [ours], theirs, ".1f", " ms")


if __name__ == "__main__":
    main(Options())
