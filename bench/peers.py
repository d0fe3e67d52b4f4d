"""All contenders compared: draining a queue, enqueueing, and starting a job on an idle system."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any, Final

from bench.children import ChildFailed
from bench.contenders import ALL, PGQUEUER, TRAX, Contender, available
from bench.drain import ON, ON_2, PEER, PEER_2, add_drain_goals
from bench.enqueue import add_enqueue_goals
from bench.figures import Sheet, percentile, row, spread
from bench.options import Options
from bench.pickup import add_pickup_goal
from bench.runner import Drain, Intake, drain, pick_up, take_in, team
from bench.servers import Servers

WIDTHS: Final = (26, 26, 12, 12, 10, 26, 24, 10)
FEWEST: Final = 100
"""Jobs, for contenders that drain only a share."""
CALLS: Final = 10
SINGLES: Final = 300
PICKUPS: Final = 50
Figures = dict[str, list[Any]]


def main(options: Options) -> None:
    rounds = options.sized(options.rounds, 1)
    print(f"peers: all take turns, median (lowest to highest) of {rounds} rounds")
    sheet = Sheet("peers", options)
    with Servers() as servers:
        figures = _measure(servers, options, rounds)
        sheet.versions |= servers.versions
    row(
        "",
        "jobs/s",
        "2 processes",
        "Python µs",
        "server µs",
        "WAL B",
        "bulk/s",
        "single/s",
        "p50 ms",
        widths=WIDTHS,
    )
    for name, found in figures.items():
        _show(name, found)
    if (ours := figures.get(TRAX.name)) and (theirs := figures.get(PGQUEUER.name)):
        add_goals(sheet, ours, theirs)
    sheet.figures |= figures
    sheet.save()


def _measure(servers: Servers, options: Options, rounds: int) -> dict[str, Figures]:
    """In rounds, so that a slow minute of the machine affects all. One that fails is left out."""
    figures: dict[str, Figures] = {}
    contenders = available(ALL, options.only)
    for _ in range(rounds):
        for contender in list(contenders):
            try:
                found = _measure_one(servers, contender, options)
            except (ChildFailed, AssertionError, TimeoutError) as error:
                print(f"  {contender.name} is left out: {error}")
                contenders.remove(contender)
                figures.pop(contender.name, None)
                continue
            for which, each in found.items():
                figures.setdefault(contender.name, defaultdict(list))[which].append(each)
    return figures


def _measure_one(servers: Servers, contender: Contender, options: Options) -> dict[str, Any]:
    if options.quick:
        with team(servers, contender) as pair:
            return {
                "drain": pair.drain(FEWEST)._asdict(),
                "pickup": pair.pick_up(2),
                "intake": pair.take_in(1, 5, 10)._asdict(),
            }
    jobs, calls = max(FEWEST, int(options.jobs * contender.share)), max(1, int(CALLS * contender.share))
    return {
        "drain": drain(servers, contender, jobs)._asdict(),
        "drain 2": drain(servers, contender, jobs, 2)._asdict(),
        "intake": take_in(servers, contender, calls, SINGLES)._asdict(),
        "pickup": pick_up(servers, contender, PICKUPS),
    }


def _show(name: str, found: Figures) -> None:
    drains = [Drain(**one) for one in found["drain"]]
    pairs = [one["rate"] for one in found.get("drain 2", [])]
    times = [one for each in found["pickup"] for one in each]
    wal = [one.wal_bytes for one in drains if one.wal_bytes is not None]
    row(
        name,
        spread([one.rate for one in drains]),
        spread(pairs) if pairs else "",
        f"{median(one.worker_us for one in drains):.0f}",
        f"{median(one.server_us for one in drains):.0f}",
        f"{median(wal):,.0f}" if wal else "",
        spread([one["bulk"] for one in found["intake"]]),
        spread([one["single"] for one in found["intake"]]),
        f"{percentile(times, 0.5):.1f}",
        widths=WIDTHS,
    )


def add_goals(sheet: Sheet, ours: Figures, theirs: Figures) -> None:
    """The goals of `drain`, `enqueue` and `pickup` that concern the same figures."""
    rounds = {ON: ours["drain"], PEER: theirs["drain"]}
    if "drain 2" in ours:
        rounds |= {ON_2: ours["drain 2"], PEER_2: theirs["drain 2"]}
    add_drain_goals(sheet, {name: [Drain(**one) for one in each] for name, each in rounds.items()})
    add_enqueue_goals(sheet, *([Intake(**one) for one in each["intake"]] for each in (ours, theirs)))
    times = ([one for each in found["pickup"] for one in each] for found in (ours, theirs))
    add_pickup_goal(sheet, *(percentile(each, 0.5) for each in times))


if __name__ == "__main__":
    main(Options())
