"""`trax simulate`: simulate the manifests of an app, and show when they run and what waits."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter, validators

from trax.bounds import LARGEST_COUNT, MAX_SLOTS, MOMENT_TEXT, is_moment
from trax.cli.operators import AsJson, parse_delay, usage_error
from trax.cli.options import AppName  # noqa: TC001 - cyclopts reads it
from trax.cli.output import as_mapping, say, show_json, show_rows
from trax.cli.settings import parse_assignment
from trax.clock import DURATION_FORMS, format_duration, parse_duration
from trax.errors import TraxError, count_noun, format_value

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from trax.inspect.forecast_figures import Figures
    from trax.inspect.simulate import Forecast, Scenario, TrainModel
    from trax.worker.app_context import AppContext

MOST_DAYS: Final = 366
MOST_SERVERS: Final = 20
SHOWN: Final = 40
NAMED: Final = 8
PERCENT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")
COMMAND: Final = "simulate"

Days = Annotated[
    float, Parameter(help="How many days to simulate.", validator=validators.Number(gt=0, lte=MOST_DAYS))
]
Seed = Annotated[
    int,
    Parameter(help="Random seed; the same seed, start and history give the same result."),
]
From = Annotated[
    datetime | None,
    Parameter("--from", help="When to begin, such as 2027-03-01T18:00, in UTC; default: now."),
]
LONGEST_LIMIT: Final = len(str(LARGEST_COUNT))
Servers = Annotated[
    int, Parameter(help="How many servers.", validator=validators.Number(gte=1, lte=MOST_SERVERS))
]
Slots = Annotated[
    int | None,
    Parameter(
        help="How many jobs one server runs at once; default: from the settings.",
        validator=validators.Number(gte=1, lte=MAX_SLOTS),
    ),
]
Durations = Annotated[
    list[str] | None,
    Parameter(
        "--duration",
        negative=(),
        help=f"TRAIN=TIME: how long its runs take, such as {DURATION_FORMS}. Repeatable.",
    ),
]
Failures = Annotated[
    list[str] | None,
    Parameter("--failures", negative=(), help="TRAIN=5%: how many of its runs fail. Repeatable."),
]
Changes = Annotated[
    list[str] | None,
    Parameter(
        "--set", negative=(), help="NAME=VALUE: change a setting, such as max_active_jobs=50. Repeatable."
    ),
]
Groups = Annotated[
    list[str] | None,
    Parameter(
        "--group", negative=(), help="GROUP=10: change the limit of a group; `none`: no limit. Repeatable."
    ),
]
Resolution = Annotated[
    timedelta | None,
    Parameter(
        help="Round times to this, to be faster; default: 1 s; over 2 days 10 s, over 10 days 30 s.",
        converter=parse_delay,
    ),
]
Compare = Annotated[
    bool, Parameter(negative=(), help="Show the result without and with --set and --group side by side.")
]
Svg = Annotated[Path | None, Parameter(help="Write a Gantt chart of one day to this file.")]
SvgDay = Annotated[
    datetime | None, Parameter(help="The day of the chart, such as 2027-03-01; default: the busiest one.")
]
Top = Annotated[
    int, Parameter(help="List this many manifests, the latest first.", validator=validators.Number(gte=1))
]


def simulate(
    app: AppName = None,
    /,
    *,
    days: Days = 1.0,
    seed: Seed = 1,
    start: From = None,
    servers: Servers = 1,
    slots: Slots = None,
    durations: Durations = None,
    failures: Failures = None,
    changes: Changes = None,
    groups: Groups = None,
    resolution: Resolution = None,
    compare: Compare = False,
    svg: Svg = None,
    svg_day: SvgDay = None,
    top: Top = SHOWN,
    as_json: AsJson = False,
) -> None:
    """Simulate the manifests of an app with the real engine: when they run, how late, and what is full.

    Nothing is changed, and no job is run: durations and failures are drawn from the history in the app's
    database, or given. For example: trax simulate app.py:app --days 7 --group etl=10 --compare
    """
    from trax.cli.loading import load_app
    from trax.inspect.simulate import Scenario

    scenario = Scenario(
        start=None if start is None else _in_utc(start),
        days=days,
        seed=seed,
        servers=servers,
        slots=slots,
        durations={name: _seconds(text) for name, text in _pairs("--duration", durations)},
        failures={name: _share(text) for name, text in _pairs("--failures", failures)},
        settings=dict(parse_assignment(each, COMMAND) for each in changes or ()),
        groups={name: _limit(text) for name, text in _pairs("--group", groups)},
        resolution=resolution,
    )
    if compare and not (scenario.settings or scenario.groups):
        raise usage_error("Nothing to compare: give --set or --group.", COMMAND)
    results = _run(load_app(app).context, scenario, compare=compare)
    if svg is not None:
        _write_svg(svg, *results[-1], None if svg_day is None else svg_day.date())
    if as_json:
        documents = [_document(*result) for result in results]
        show_json({"without": documents[0], "with": documents[1]} if compare else documents[0])
    else:
        _show(results, scenario, top)


def _run(context: AppContext, scenario: Scenario, *, compare: bool) -> list[tuple[Forecast, Figures]]:
    from trax.inspect.forecast_figures import build_figures
    from trax.inspect.simulate import forecast, load_facts

    facts = load_facts(context)
    scenarios = [replace(scenario, settings={}, groups={}), scenario] if compare else [scenario]
    results: list[tuple[Forecast, Figures]] = []
    with _progress(len(scenarios)) as advance:
        for number, each in enumerate(scenarios):
            done = forecast(
                context, each, facts=facts, on_progress=lambda share, number=number: advance(number + share)
            )
            results.append((done, build_figures(done)))
    return results


@contextmanager
def _progress(total: int) -> Generator[Callable[[float], None]]:
    """A progress bar on the terminal, if there is one."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=total)
        yield lambda done: bar.update(task, completed=done)


def _pairs(option: str, texts: Sequence[str] | None) -> Iterable[tuple[str, str]]:
    for each in texts or ():
        name, equals, value = each.rpartition("=")
        if not equals or not name:
            raise usage_error(f"Invalid {option} {each!r}: give NAME=VALUE.", COMMAND)
        yield name, value


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise usage_error(f"Invalid --duration {text!r}: {error}.", COMMAND) from None
    if seconds < 0:
        raise usage_error(f"Invalid --duration {text!r}: it must not be negative.", COMMAND)
    return seconds


def _share(text: str) -> float:
    match = PERCENT.fullmatch(text)
    share = float(match[1]) / 100 if match else math.nan
    if not 0 <= share <= 1:
        raise usage_error(f"Invalid --failures {text!r}: give a share such as 5%.", COMMAND)
    return share


def _limit(text: str) -> int | None:
    if text.lower() == "none":
        return None
    if not text.isdecimal():
        raise usage_error(f"Invalid --group {text!r}: give a number, or none for no limit.", COMMAND)
    if len(text) > LONGEST_LIMIT or int(text) > LARGEST_COUNT:
        raise usage_error(f"Invalid --group {format_value(text)}: at most {LARGEST_COUNT}.", COMMAND)
    return int(text)


def _in_utc(moment: datetime) -> datetime:
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    if not is_moment(aware):
        raise usage_error(f"Invalid --from {moment.isoformat()}: it must be {MOMENT_TEXT}.", COMMAND)
    return aware.astimezone(UTC)


def _write_svg(file: Path, forecast: Forecast, figures: Figures, day: date | None) -> None:
    from trax.inspect.gantt import busiest_day, draw_day

    chosen = day or busiest_day(figures) or forecast.start.date()
    try:
        file.write_text(draw_day(forecast, chosen), encoding="utf-8")
    except OSError as error:
        raise TraxError(f"{file} cannot be written: {error.strerror}") from error
    print(f"trax: wrote {file}: the runs of {chosen}", file=sys.stderr)  # noqa: T201


def _document(forecast: Forecast, figures: Figures) -> Mapping[str, Any]:
    """Everything but the single runs."""
    left_out = {"runs", "manifests", "parents", "group_of", "limits", "dead_letters"}
    known = {name: value for name, value in as_mapping(forecast).items() if name not in left_out}
    return {
        **known,
        "trains": {name: _train(each) for name, each in forecast.trains.items()},
        **as_mapping(figures),
    }


def _train(model: TrainModel) -> dict[str, Any]:
    from statistics import mean, median

    return {
        "source": model.source,
        "sampled_runs": len(model.seconds) if model.source == "history" else 0,
        "mean": timedelta(seconds=round(mean(model.seconds), 3)),
        "median": timedelta(seconds=round(median(model.seconds), 3)),
        "failure_rate": round(model.failure_rate, 4),
    }


def _show(results: Sequence[tuple[Forecast, Figures]], scenario: Scenario, top: int) -> None:
    """Show one result, or the changes from the first to the second."""
    forecast = results[-1][0]
    _show_head(forecast)
    _show_trains(forecast)
    if len(results) > 1:
        changes = (*scenario.settings.items(), *scenario.groups.items())
        say(f"\nWithout → with {', '.join(f'{name}={_number(value)}' for name, value in changes)}")
    figures = [each for _, each in results]
    for title, columns, noun in TABLES:
        rows = _pair([getattr(each, noun) for each in figures], columns[0][1])
        if noun in ORDER:
            rows.sort(key=lambda row, order=ORDER[noun]: max(map(order, row)), reverse=True)
        shown = rows[:top] if noun in ORDER else rows
        if rows:
            say(f"\n{title}{f' ({top} of {len(rows)})' if len(rows) > len(shown) else ''}")
            cells = [[_change([cell(each) for each in row]) for _, cell in columns] for row in shown]
            show_rows([name for name, _ in columns], cells)


def _pair(lists: Sequence[Sequence[Any]], key: Callable[[Any], str]) -> list[list[Any]]:
    """The figures of one thing in all results, side by side; what one result does not have is left out."""
    known = [{key(each): each for each in one} for one in lists]
    return [[one[name] for one in known] for name in known[0] if all(name in one for one in known)]


def _change(cells: Sequence[str]) -> str:
    return cells[0] if len(set(cells)) == 1 else " → ".join(cells)


def _show_head(forecast: Forecast) -> None:
    length, step = format_duration(forecast.end - forecast.start), format_duration(forecast.resolution)
    servers = count_noun(forecast.servers, "server")
    say(
        f"Simulated {length} from {forecast.start:%Y-%m-%d %H:%M} UTC with seed {forecast.seed}: "
        f"{len(forecast.runs):,} runs on {servers} with {forecast.slots} slots each; "
        f"moments are rounded to {step}"
    )


def _show_trains(forecast: Forecast) -> None:
    guessed = [name for name, model in forecast.trains.items() if model.source == "default"]
    known = {name: model for name, model in forecast.trains.items() if name not in guessed}
    if known:
        say("\nTrains: how long their runs take")
        cells = [(name, _source(each), *_train_cells(each)) for name, each in known.items()]
        show_rows(["train", "from", "mean", "median", "fail"], cells)
    if guessed:
        seconds, more = forecast.trains[guessed[0]].seconds[0], len(guessed) - NAMED
        names = ", ".join(guessed[:NAMED]) + (f" and {more} more" if more > 0 else "")
        say(
            f"\nTrains without a completed run in the last 30 days: {names}. "
            f"Their runs are assumed to take {format_duration(seconds, units=2)}; give --duration TRAIN=TIME."
        )


def _train_cells(model: TrainModel) -> tuple[str, ...]:
    known = _train(model)
    return (_duration(known["mean"]), _duration(known["median"]), f"{model.failure_rate:.1%}")


def _source(model: TrainModel) -> str:
    return f"{len(model.seconds)} runs" if model.source == "history" else model.source


def _lateness(figures: Any) -> timedelta:
    return figures.p95_lateness or timedelta(0)


def _longest(figures: Any) -> timedelta:
    return figures.longest


def _number(value: Any) -> str:
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _moment(value: datetime | None) -> str:
    return "-" if value is None else f"{value:%d %b %H:%M:%S}"


def _duration(value: timedelta | None) -> str:
    return "-" if value is None else format_duration(value, units=2)


Columns = tuple[tuple[str, Callable[[Any], str]], ...]
MANIFESTS: Final[Columns] = (
    ("manifest", lambda each: each.manifest),
    ("runs", lambda each: _number(each.runs)),
    ("first start", lambda each: _moment(each.first_start)),
    ("last end", lambda each: _moment(each.last_end)),
    ("late p50", lambda each: _duration(each.p50_lateness)),
    ("late p95", lambda each: _duration(each.p95_lateness)),
    ("longest wait", lambda each: _duration(each.longest_wait)),
    ("failed", lambda each: _number(each.failures)),
    ("timed out", lambda each: _number(each.timeouts)),
    ("dead letters", lambda each: _number(each.dead_letters)),
)
GROUPS: Final[Columns] = (
    ("group", lambda each: "all groups" if each.group is None else each.group),
    ("limit", lambda each: _number(each.limit)),
    ("peak", lambda each: _number(each.peak)),
    ("full", lambda each: "-" if each.limit is None else f"{each.share_at_limit:.1%}"),
)
CHAINS: Final[Columns] = (
    ("chain", lambda each: each.root),
    ("times", lambda each: _number(each.occurrences)),
    ("p50", lambda each: _duration(each.p50)),
    ("p95", lambda each: _duration(each.p95)),
    ("longest", lambda each: _duration(each.longest)),
    ("ends at", lambda each: f"{each.p50_end:%H:%M}"),
    ("longest ends", lambda each: _moment(each.latest_end)),
)
DAYS: Final[Columns] = (
    ("day", lambda each: f"{each.day:%a %Y-%m-%d}"),
    ("runs", lambda each: _number(each.runs)),
    ("failed", lambda each: _number(each.failures)),
    ("chains end", lambda each: _moment(each.chains_end)),
    ("longest chain", lambda each: each.longest_chain or "-"),
    ("it takes", lambda each: _duration(each.makespan)),
)
TABLES: Final = (
    ("Manifests, the latest first; late is the time from due to start", MANIFESTS, "manifests"),
    ("Limits; full is the share of the time at the limit", GROUPS, "groups"),
    ("Chains, from due to the last end, the longest first", CHAINS, "chains"),
    ("Days (UTC)", DAYS, "days"),
)
ORDER: Final[Mapping[str, Callable[[Any], timedelta]]] = {"manifests": _lateness, "chains": _longest}
