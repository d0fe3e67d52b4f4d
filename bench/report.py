"""Write docs/reference/benchmarks.md and its charts from the figures of the last runs."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench import cleanup, public
from bench.charts import Line, Value, draw_bars
from bench.children import PROJECT
from bench.contenders import ALL, TRAX
from bench.figures import LATEST, PUBLISHED, load_results, percentile, save_results, spread
from bench.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TEMPLATE: Final = Path(__file__).with_name("benchmarks.template.md")
PAGE: Final = PROJECT / "docs" / "reference" / "benchmarks.md"
PICTURES: Final = PROJECT / "docs" / "pictures"
BENCHES: Final = ("peers", "drain", "enqueue", "pickup", "load", "public", "cleanup", "idle")
NO_FIGURES: Final = (
    "## Compared with others\n\nNo figures yet: run `make bench ARGS=peers`, then `make bench ARGS=report`.\n"
)
HEADS: Final = (
    "",
    "Drain, jobs/s",
    "2 processes",
    "Worker µs/job",
    "Server µs/job",
    "WAL bytes/job",
    "Bulk, jobs/s",
    "Single, jobs/s",
    "Pickup p50, ms",
    "p99, ms",
)
LOAD: Final = """## Under a steady load

One process queues single jobs at a steady rate and another one works. Times are from the call that queues to
the start of the job, in milliseconds. A held snapshot means: another session stays idle in a transaction, so
that PostgreSQL cannot remove dead rows.

"""
PUBLIC: Final = """## Chaos and pressure, as in the public queue benchmark

The scenarios of [postgresql-job-queue-benchmarking](https://github.com/hardbyte/postgresql-job-queue-benchmarking),
with its contract and its settings of PostgreSQL, in phases of {seconds:.0f} s or more instead of minutes.
{rate:,} jobs a second are offered, each with 256 bytes and 1 ms of work; the process that works also
queues. *Before* and *after* are the usual load; *during* is the disturbance, or the part of it in which
the fewest jobs were done. Rates are jobs done per second. p99 is from the call that queues to the start,
over the last 30 s. *Back after* counts from the end of the disturbance until 90 % of the rate before it.
*Left* are jobs not done {drain} s after the load ended. *Lost* are jobs that were accepted and are neither
done nor left. *Findings* are those of `trax verify` in the whole history. *Ended* says whether the processes
ended properly.

"""
CLEANUP: Final = """## History that is deleted at the rate at which it grows

For {minutes:.0f} min the database wrote {inserted:,.0f} ended jobs per second, and the cleanup of a server
deleted each of them {retention} s later: {deleted:,.0f} per second. Meanwhile {admitted:,} jobs were queued
and admitted. The goals above compare sizes with those when deletes had first caught up.

"""
Results = dict[str, Any]


def main(_options: Options) -> None:
    """Publish the latest figures. Those of an earlier day are dropped: they may be of older code."""
    for name in BENCHES:
        if latest := load_results(LATEST, name):
            save_results(PUBLISHED, name, latest)
    results = select_newest_day(load_published())
    for name in set(BENCHES) - results.keys():
        (PUBLISHED / f"{name}.json").unlink(missing_ok=True)
    charts = build_charts(results)
    for chart in CHARTS:
        if chart.file in charts:
            (PICTURES / chart.file).write_text(charts[chart.file], encoding="utf-8")
        else:
            (PICTURES / chart.file).unlink(missing_ok=True)
    PAGE.write_text(build_page(results), encoding="utf-8")
    print(f"{PAGE.relative_to(PROJECT)}, from {', '.join(results) or 'no figures: no benchmark was run'}")


def load_published() -> Results:
    return {name: found for name in BENCHES if (found := load_results(PUBLISHED, name))}


def select_newest_day(results: Results) -> Results:
    """The results of the newest day: figures of two days on one page contradict each other."""
    newest = max((found["at"] for found in results.values()), default="")
    return {name: found for name, found in results.items() if found["at"] == newest}


def build_page(results: Results) -> str:
    return TEMPLATE.read_text(encoding="utf-8").format(
        conditions=_conditions(results),
        peers=_peers(results["peers"]["figures"]) if "peers" in results else NO_FIGURES,
        goals=_goals(results),
        load=_load(results["load"]["figures"]) if "load" in results else "",
        public=_public(results["public"]["figures"]) if "public" in results else "",
        cleanup=_cleanup(results["cleanup"]["figures"]) if "cleanup" in results else "",
    )


def _conditions(results: Results) -> str:
    """Where and when, and which versions."""
    if not results:
        return ""
    rows = [
        [name, found["at"], *found["machine"].values(), _format_versions(found["versions"])]
        for name, found in results.items()
    ]
    heads = ["Run", "On", "Processor", "Memory", "System", "Load before", "Versions"]
    missing = ", ".join(f"`{name}`" for name in BENCHES if name not in results)
    note = f"\nNot measured in this run: {missing}.\n" if missing else ""
    return "## Machine and versions\n\n" + _table(heads, rows) + note


def _format_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _peers(figures: Results) -> str:
    lines = ["## Compared with others\n"]
    for chart in CHARTS:
        alternative = f"{chart.title}, {chart.unit}: the table below has the same figures"
        lines.append(f"![{alternative}](../pictures/{chart.file})\n")
    rows = [_peer_row(one.name, figures[one.name]) for one in ALL if one.name in figures]
    missing = [one.name for one in ALL if one.name not in figures]
    lines.append(_table(HEADS, rows))
    if missing:
        lines.append(f"\nNot measured in this run: {', '.join(missing)}.\n")
    return "\n".join(lines)


def _peer_row(name: str, found: Results) -> list[str]:
    one, two = found["drain"], found.get("drain 2", [])
    times = [each for round_ in found["pickup"] for each in round_]
    wal = [each["wal_bytes"] for each in one if each["wal_bytes"] is not None]
    return [
        f"**{name}**" if name == TRAX.name else name,
        spread([each["rate"] for each in one]),
        spread([each["rate"] for each in two]) if two else "-",
        f"{median(each['worker_us'] for each in one):,.0f}",
        f"{median(each['server_us'] for each in one):,.0f}",
        f"{median(wal):,.0f}" if wal else "-",
        spread([each["bulk"] for each in found["intake"]]),
        spread([each["single"] for each in found["intake"]]),
        f"{percentile(times, 0.5):.1f}",
        f"{percentile(times, 0.99):.1f}",
    ]


def _goals(results: Results) -> str:
    goals: dict[str, list[str]] = {}
    for found in results.values():
        for each in found["goals"]:
            row = [each["name"], each["figure"], each["goal"], "yes" if each["met"] else "**no**"]
            goals.setdefault(each["name"], row)  # `peers` comes first: its figures are in the table above
    if not goals:
        return ""
    idle = results.get("drain", {}).get("figures", {}).get("idle share")
    share = (
        f"\nDuring a drain, Python and the server were both idle {spread(idle, '.0%')} of the time.\n"
        if idle
        else ""
    )
    return "## Our goals\n\n" + _table(["", "Measured", "Goal", "Met"], list(goals.values())) + share


def _load(figures: Results) -> str:
    rows = [
        [
            case,
            name,
            *(_milliseconds(found[which]) for which in ("p50", "p99", "p50 first", "p50 last")),
            *(f"{found[which]:,.0f}" for which in ("first rate", "last rate", "waiting")),
        ]
        for case, contenders in figures.items()
        for name, found in contenders.items()
    ]
    heads = ["Offered", "", "p50", "p99", "p50, first fifth", "p50, last fifth"]
    heads += ["Jobs/s, first fifth", "Jobs/s, last fifth", "Left waiting"]
    return LOAD + _table(heads, rows)


def _public(figures: Results) -> str:
    rows = [
        _public_row(scenario, name, found)
        for scenario, systems in figures.items()
        for name, found in systems.items()
    ]
    heads = ["Scenario", "", "Before", "During", "After", "p99 before, ms", "p99 during", "p99 after"]
    heads += ["Dead rows", "Back after, s", "Left", "Lost", "Findings", "Ended"]
    measured = [found for systems in figures.values() for found in systems.values()]
    seconds = min(phase["seconds"] for found in measured for phase in found["phases"].values())
    return PUBLIC.format(seconds=seconds, rate=public.RATE, drain=public.DRAIN_SECONDS) + _table(heads, rows)


def _public_row(scenario: str, name: str, found: Results) -> list[str]:
    phases = found["phases"]
    before, during, after = phases[public.BEFORE.name], public.worst_stress(found), phases[public.AFTER.name]
    recovery = found["recovery seconds"]
    return [
        scenario,
        name,
        *(f"{phase['rate']:,.0f}" for phase in (before, during, after)),
        *(_milliseconds(phase["p99"]) for phase in (before, during, after)),
        f"{max(phase['dead rows'] for phase in phases.values()):,}",
        "-" if recovery is None else f"{recovery:.0f}",
        f"{found['left']:,}",
        f"{found['lost']:,}",
        f"{found['findings']:,}" if "findings" in found else "-",
        "yes" if set(found["exits"]) == {0} else "**no**",
    ]


def _cleanup(figures: Results) -> str:
    sizes = [[name, f"{size / 1e6:,.0f} MB"] for name, size in figures["sizes"].items()]
    visits = [
        [f"visit to the gate, {name}", *(_milliseconds(1e3 * found[when]) for when in ("alone", "beside"))]
        for name, found in figures["visits"].items()
    ]
    text = CLEANUP.format(
        minutes=figures["seconds"] / 60,
        inserted=figures["inserted a second"],
        deleted=figures["deleted a second"],
        retention=cleanup.RETENTION_SECONDS,
        admitted=figures["admitted"],
    )
    tables = (
        (["", "At the end"], sizes),
        (["", "Alone, ms", "Beside, ms"], visits),
    )
    return text + "\n".join(_table(*each) for each in tables)


def _milliseconds(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,.1f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def build_charts(results: Results) -> dict[str, str]:
    """The charts by their file names."""
    figures = results.get("peers", {}).get("figures", {})
    return {
        chart.file: draw_bars(chart.title, chart.unit, chart.series, lines)
        for chart in CHARTS
        if (lines := chart.lines(figures))
    }


def _rates(found: Results) -> list[list[float]]:
    return [[each["rate"] for each in found.get(which, [])] for which in ("drain", "drain 2")]


def _costs(found: Results) -> list[list[float]]:
    return [[each[which] for each in found["drain"]] for which in ("worker_us", "server_us")]


def _bulks(found: Results) -> list[list[float]]:
    return [[each["bulk"] for each in found["intake"]]]


def _singles(found: Results) -> list[list[float]]:
    return [[each["single"] for each in found["intake"]]]


def _pickups(found: Results) -> list[list[float]]:
    return [[percentile(each, 0.5) for each in found["pickup"]]]


class Chart(NamedTuple):
    """`pick` takes the rounds of each series out of the figures of a contender."""

    file: str
    title: str
    unit: str
    series: Sequence[str]
    pick: Callable[[Results], list[list[float]]]
    is_more_better: bool = True

    def lines(self, figures: Results) -> list[Line]:
        """The contenders, the best first."""
        found = {name: [_value(rounds) for rounds in self.pick(one)] for name, one in figures.items()}
        lines = [Line(name, values, name == TRAX.name) for name, values in found.items()]
        return sorted(lines, key=self._key, reverse=self.is_more_better)

    def _key(self, line: Line) -> float:
        return sum(value.middle for value in line.values if value) if self.pick is _costs else _first(line)


def _first(line: Line) -> float:
    return line.values[0].middle if line.values[0] else 0


def _value(rounds: Sequence[float]) -> Value | None:
    return Value(median(rounds), min(rounds), max(rounds)) if rounds else None


CHARTS: Final = (
    Chart(
        "benchmark-drain.svg",
        "A full queue is worked off",
        "jobs a second",
        ("1 process", "2 processes"),
        _rates,
    ),
    Chart(
        "benchmark-cost.svg",
        "Processor time for each job",
        "microseconds",
        ("working process", "database server"),
        _costs,
        is_more_better=False,
    ),
    Chart("benchmark-bulk.svg", "Jobs queued 1,000 a call", "jobs a second", ("1 caller",), _bulks),
    Chart(
        "benchmark-single.svg",
        "Jobs queued one a call",
        "jobs a second",
        ("1 caller, one after the other",),
        _singles,
    ),
    Chart(
        "benchmark-pickup.svg",
        "From the call that queues to the start of the job",
        "milliseconds",
        ("median on an idle system",),
        _pickups,
        is_more_better=False,
    ),
)


if __name__ == "__main__":
    main(Options())
