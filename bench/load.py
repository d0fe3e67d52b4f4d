"""How late jobs start at a steady rate of single jobs, and while another session holds a snapshot."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from bench.contenders import PGQUEUER, TRAX, available
from bench.figures import Sheet, percentile, row
from bench.options import Options
from bench.runner import Latency, offer
from bench.servers import Servers

WIDTHS: Final = (10, 12, 12, 12, 12, 10, 10, 10)
WINDOW: Final = 0.2
"""The share of the time that counts as the beginning, and as the end."""


class Case(NamedTuple):
    name: str
    rate: int
    seconds: int
    quick_seconds: int
    is_held: bool = False


CASES: Final = (
    Case("800 jobs/s offered", 800, 10, 1),
    Case("1,600 jobs/s offered", 1_600, 10, 1),
    Case("800 jobs/s, a snapshot held", 800, 45, 2, is_held=True),
)


def main(options: Options) -> None:
    print(
        "load: single jobs at a steady rate, one working process; time from the call to the start of the job"
    )
    sheet = Sheet("load", options)
    contenders = available((TRAX, PGQUEUER), options.only)
    with Servers() as servers:
        row(
            "",
            "seconds",
            "p50",
            "p99",
            "p50 first",
            "p50 last",
            "first /s",
            "last /s",
            "waiting",
            widths=WIDTHS,
        )
        for case in CASES:
            seconds = options.sized(case.seconds, case.quick_seconds)
            for contender in contenders:
                latency = offer(servers, contender, case.rate, seconds, hold=case.is_held)
                figures = _summarize(latency)
                sheet.figures.setdefault(case.name, {})[contender.name] = figures
                _show(f"{case.name}, {contender.name}", figures)
        sheet.versions |= servers.versions
    sheet.save()


def _summarize(latency: Latency) -> dict[str, Any]:
    """Figures of the whole time, its first and last fifth; jobs not started at the end count as waiting."""
    window = latency.seconds * WINDOW
    whole = _late(latency, 0, latency.seconds)
    first = _late(latency, 0, window)
    last = _late(latency, latency.seconds - window, latency.seconds)
    return {
        "seconds": latency.seconds,
        "p50": percentile(whole, 0.5),
        "p99": percentile(whole, 0.99),
        "p50 first": percentile(first, 0.5) if first else None,
        "p50 last": percentile(last, 0.5) if last else None,
        "first rate": len(first) / window,
        "last rate": len(last) / window,
        "waiting": latency.offered - len(latency.starts),
    }


def _late(latency: Latency, since: float, until: float) -> list[float]:
    """The lateness, in milliseconds, of the jobs that started in this time."""
    return [(started - asked) * 1e3 for asked, started in latency.starts if since <= started < until]


def _show(name: str, figures: dict[str, Any]) -> None:
    times = [figures[which] for which in ("p50", "p99", "p50 first", "p50 last")]
    cells = ["-" if each is None else f"{each:,.1f} ms" for each in times]
    rates = [f"{figures[which]:,.0f}" for which in ("first rate", "last rate", "waiting")]
    row(name, f"{figures['seconds']:.0f}", *cells, *rates, widths=WIDTHS)


if __name__ == "__main__":
    main(Options())
