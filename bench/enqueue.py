"""How fast jobs are enqueued, a thousand per call and one per call, compared with PgQueuer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Final

from bench.contenders import PGQUEUER, TRAX, available
from bench.figures import Sheet, ratios, row, spread
from bench.options import Options
from bench.runner import BULK, Intake, take_in
from bench.servers import Servers

SQLITE: Final = replace(TRAX, name="Trax on SQLite", storage="sqlite")
GOALS: Final = {"bulk": 1.5, "single": 1.0}
"""As a multiple of PgQueuer's rate."""
WIDTHS: Final = (32,)


def main(options: Options) -> None:
    calls, singles = options.sized(20, 2), options.sized(500, 20)
    rounds = options.sized(options.rounds, 1)
    print(
        f"enqueue: {calls} calls with {BULK:,} jobs each, and {singles} calls with one; "
        f"median (lowest to highest) of {rounds}"
    )
    sheet = Sheet("enqueue", options)
    figures: dict[str, list[Intake]] = defaultdict(list)
    contenders = available((TRAX, PGQUEUER, SQLITE))
    with Servers() as servers:
        for _ in range(rounds):
            for contender in contenders:
                figures[contender.name].append(take_in(servers, contender, calls, singles))
        sheet.versions |= servers.versions
    for name, taken in figures.items():
        for which in Intake._fields:
            row(f"{name}, {which}", f"{spread([getattr(one, which) for one in taken])}/s", widths=WIDTHS)
    if theirs := figures.get(PGQUEUER.name):
        add_enqueue_goals(sheet, figures[TRAX.name], theirs)
    sheet.figures = {name: [one._asdict() for one in taken] for name, taken in figures.items()}
    sheet.save()


def add_enqueue_goals(sheet: Sheet, ours: list[Intake], theirs: list[Intake]) -> None:
    for which, wanted in GOALS.items():
        mine, other = ([getattr(one, which) for one in taken] for taken in (ours, theirs))
        name = f"{which} enqueue, beside PgQueuer"
        sheet.goal_at_least(name, ratios(mine, other), wanted, ".2f", " x")


if __name__ == "__main__":
    main(Options())
