"""Format figures: median, spread and goal; save them as JSON."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.options import Options

LATEST: Final = Path(__file__).parent.parent / "dist" / "bench"
"""The latest figures."""
PUBLISHED: Final = Path(__file__).parent / "results"
"""The figures that the page shows."""
GIBIBYTE: Final = 1024**3
TODAY: Final = f"{datetime.now(UTC):%Y-%m-%d}"
"""The day on which this run began: all its benchmarks have the same."""


def spread(figures: Sequence[float], form: str = ",.0f") -> str:
    """The median, with the lowest and the highest value if there are several."""
    if len(figures) == 1:
        return f"{figures[0]:{form}}"
    return f"{median(figures):{form}} ({min(figures):{form}} to {max(figures):{form}})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The ratio of each round: what slowed one side down slowed the other down too."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def percentile(figures: Sequence[float], share: float) -> float:
    return sorted(figures)[min(len(figures) - 1, int(len(figures) * share))]


def row(name: str, *cells: str, widths: Sequence[int]) -> None:
    print(f"  {name:<38}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False)))


def goal(name: str, figure: str, wanted: str, *, met: bool) -> None:
    print(f"  {'met   ' if met else 'MISSED'}  {name}: {figure}, goal {wanted}")


class Sheet:
    """The results of one benchmark, figures by name and goals: printed at once, saved at the end."""

    def __init__(self, bench: str, options: Options) -> None:
        self._bench = bench
        self._is_saved = not options.quick
        self._head = {"bench": bench, "at": TODAY, "machine": describe_machine()}
        earlier = (load_results(LATEST, bench) if options.only else None) or {}
        earlier = earlier if earlier.get("at") == TODAY else {}
        self.figures: dict[str, Any] = earlier.get("figures", {})
        """The figures of contenders that were not chosen this time are kept, if they are of the same day."""
        self.versions: dict[str, str] = earlier.get("versions", {})
        self._goals: list[dict[str, Any]] = []

    def goal_at_least(
        self, name: str, figures: Sequence[float], wanted: float, form: str = ",.0f", unit: str = ""
    ) -> None:
        self._goal(
            name, figures, f"at least {wanted:{form}}{unit}", form, unit, met=median(figures) >= wanted
        )

    def goal_at_most(
        self, name: str, figures: Sequence[float], wanted: float, form: str = ",.0f", unit: str = ""
    ) -> None:
        self._goal(name, figures, f"at most {wanted:{form}}{unit}", form, unit, met=median(figures) <= wanted)

    def _goal(
        self, name: str, figures: Sequence[float], wanted: str, form: str, unit: str, *, met: bool
    ) -> None:
        figure = f"{spread(figures, form)}{unit}"
        goal(name, figure, wanted, met=met)
        self._goals.append({"name": name, "figure": figure, "goal": wanted, "met": met})

    def save(self) -> None:
        """Write the file that `python -m bench report` reads. A quick run writes nothing."""
        if self._is_saved:
            whole = self._head | {"versions": self.versions, "goals": self._goals, "figures": self.figures}
            save_results(LATEST, self._bench, _shorten(whole))


def _shorten(value: Any) -> Any:
    """Rounded to significant digits."""
    match value:
        case dict():
            return {key: _shorten(each) for key, each in cast("dict[str, Any]", value).items()}
        case list():
            return [_shorten(each) for each in cast("list[Any]", value)]
        case float():
            return float(f"{value:.4g}")
        case _:
            return value


def save_results(folder: Path, bench: str, results: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False)
    (folder / f"{bench}.json").write_text(text + "\n", encoding="utf-8")


def load_results(folder: Path, bench: str) -> dict[str, Any] | None:
    file = folder / f"{bench}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def describe_machine() -> dict[str, str]:
    """What a reader needs to judge the figures, without the name of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIBIBYTE
    return {
        "processor": f"{os.cpu_count()} x {_first('/proc/cpuinfo', 'model name', ':') or platform.machine()}",
        "memory": f"{memory:.0f} GiB",
        "system": _first("/etc/os-release", "PRETTY_NAME", "=") or platform.system(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _first(file: str, name: str, mark: str) -> str:
    """The value of the first line that begins with this name."""
    lines = Path(file).read_text(encoding="utf-8").splitlines() if Path(file).exists() else []
    found = next((line for line in lines if line.startswith(name)), "")
    return found.partition(mark)[2].strip().strip('"')
