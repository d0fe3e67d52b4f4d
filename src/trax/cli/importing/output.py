"""Print imported jobs: as a table with remarks, or as a Python module that declares them."""

from __future__ import annotations

import json
import keyword
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import chain, count, zip_longest
from typing import TYPE_CHECKING, Any, Final, cast

from trax.cli.importing.foreign import NO_LIMIT, Command
from trax.cli.output import single_line
from trax.records.schedule import Cron, DaysOfWeek, Interval, Misfire
from trax.records.states import MisfirePolicy
from trax.schedule.cron import DAYS
from trax.schedule.preview import explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trax.cli.importing.foreign import Comparison, ImportedJob


HEADER = ("manifest", "old schedule", "Trax schedule", "next ten", "first run")


def rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    return [
        (
            each.job.external_id,
            single_line(each.job.schedule_text),
            schedule_text(each),
            each.verdict,
            _format_moment(each.ours[0]) if each.ours else "-",
        )
        for each in comparisons
    ]


def lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Remarks, and the run times of both sides if they differ."""
    for one in comparisons:
        if not one.job.remarks and (one.agrees or one.job.theirs is None):
            continue
        yield f"{one.job.external_id}:"
        yield from (f"  - {single_line(remark)}" for remark in one.job.remarks)
        if one.job.theirs is not None and not one.agrees:
            yield from _side_by_side(one)


def document(comparison: Comparison) -> dict[str, Any]:
    """All values, for JSON."""
    return {
        "external_id": comparison.job.external_id,
        "task": comparison.job.task,
        "written": comparison.job.schedule_text,
        "schedule": schedule_text(comparison),
        "input": comparison.job.input,
        "options": dict(comparison.job.options),
        "timeout": None if comparison.job.timeout == NO_LIMIT else comparison.job.timeout,
        "theirs": comparison.job.theirs,
        "ours": comparison.ours,
        "agrees": comparison.agrees,
        "verdict": comparison.verdict,
        "remarks": comparison.job.remarks,
    }


def schedule_text(comparison: Comparison) -> str:
    match comparison.job.when:
        case Cron() | Interval() as schedule:
            return explain(schedule)
        case datetime() as moment:
            return f"once, at {_format_moment(moment)}"
        case None:
            return "on demand"


def _side_by_side(comparison: Comparison) -> Iterator[str]:
    theirs = comparison.job.theirs or ()
    yield f"    {'old':20}  Trax"
    for other, mine in zip_longest(theirs, comparison.ours):
        yield f"    {_format_moment(other):20}  {_format_moment(mine)}{'' if other == mine else '  differs'}"


def _format_moment(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


UNITS: Final = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
TRAX_NAMES: Final = ("cron", "every", "exclude", "fire_all")
RESERVED_NAMES: Final = {"app", "shell", "datetime", "timedelta", *TRAX_NAMES}
NO_LIMIT_CODE: Final = f"""\
# The old scheduler had no timeout for these jobs. This is the longest possible timeout: replace it with one
# that fits each job. Without a timeout, default_job_timeout (20 min) applies.
NO_LIMIT = timedelta(days={NO_LIMIT.days})

"""
SHELL_CODE: Final = '''
class Command(BaseModel):
    """A line of the crontab."""

    line: str
    stdin: str = ""
    environment: dict[str, str] = {}


@app.train
def shell(command: Command) -> None:
    """Run a command as cron did. Replace it with trains of your own, line by line."""
    program = command.environment.get("SHELL", "/bin/sh")
    done = subprocess.run(
        [program, "-c", command.line],
        input=command.stdin,
        env={**os.environ, **command.environment},
        cwd=Path.home(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    logging.getLogger("shell").info(done.stdout)
    done.check_returncode()

'''


def python_module(jobs: Sequence[ImportedJob], source: str) -> str:
    """The module text: imports, trains, and a schedule for each job."""
    names = _train_names(jobs)
    limit = [NO_LIMIT_CODE] if any(one.timeout == NO_LIMIT for one in jobs) else []
    body = "".join([*limit, *_trains(jobs, names), *("\n" + _schedule(one, names) for one in jobs)])
    shown_source = single_line(source).replace("\\", "/").replace('"', "'")
    head = f'"""Imported from {shown_source}."""\n\nfrom __future__ import annotations\n\n'
    return f"{head}{_imports(body)}\napp = Trax()\n\n{body}"


def _imports(body: str) -> str:
    """The imports that this module text needs."""
    standard = {
        "import logging\n": "logging.",
        "import os\n": "os.environ",
        "import subprocess\n": "subprocess.run",
        "from pathlib import Path\n": "Path.",
        "from typing import Any\n": "Any",
    }
    times = [word for word in ("UTC", "datetime", "timedelta") if re.search(rf"\b{word}\b", body)]
    lines = [line for line, used in standard.items() if used in body]
    if times:
        lines.append(f"from datetime import {', '.join(times)}\n")
    lines.sort(key=lambda line: (line.startswith("from"), line))
    ours = [word for word in TRAX_NAMES if re.search(rf"\b{word}[.(]", body)]
    others = ["from pydantic import BaseModel\n"] if "BaseModel" in body else []
    break_ = ["\n"] if lines else []
    return "".join([*lines, *break_, *others, f"from trax import {', '.join(['Trax', *ours])}\n"])


def _trains(jobs: Sequence[ImportedJob], names: Mapping[str, str]) -> Iterator[str]:
    if any(isinstance(one.input, Command) for one in jobs):
        yield SHELL_CODE
    for task, name in names.items():
        parameter = _parameter(one.input for one in jobs if one.task == task)
        yield (
            f"\n@app.train\ndef {name}({parameter}) -> None:\n"
            f"    raise NotImplementedError({_literal(f'implement {task}')})\n\n"
        )


def _parameter(inputs: Iterable[Any]) -> str:
    match sorted({type(value).__name__ for value in inputs}):
        case ["NoneType"]:
            return ""
        case ["dict"]:
            return "job: dict[str, Any]"
        case ["list"]:
            return "job: list[Any]"
        case _:
            return "job: Any"


def _train_names(jobs: Sequence[ImportedJob]) -> dict[str, str]:
    """The function name for each task; with its module where two would be equal."""
    names: dict[str, str] = {}
    for one in jobs:
        if one.task in names or isinstance(one.input, Command):
            continue
        whole = _identifier(one.task)
        numbered = (f"{whole}_{number}" for number in count(2))
        candidates = chain((_identifier(one.task.rpartition(".")[2]), whole), numbered)
        names[one.task] = next(name for name in candidates if name not in {*names.values(), *RESERVED_NAMES})
    return names


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text).strip("_").lower() or "job"
    return f"{name}_" if keyword.iskeyword(name) else f"job_{name}" if name[0].isdigit() else name


def _schedule(job: ImportedJob, names: Mapping[str, str]) -> str:
    verb = "schedule_once" if isinstance(job.when, datetime) else "schedule"
    parts = [names.get(job.task, "shell"), _literal(job.external_id), _input(job.input), _when(job.when)]
    parts += [f"{name}={_value(value)}" for name, value in job.options.items()]
    parts.append(f"timeout={_value(job.timeout)}")
    remarks = "".join(f"# {single_line(text)}\n" for text in (job.schedule_text, *job.remarks))
    lines = "".join(f"    {each},\n" for each in parts)
    return f"{remarks}app.{verb}(\n{lines})\n"


def _input(value: Any) -> str:
    if not isinstance(value, Command):
        return _literal(value)
    values = {each.name: getattr(value, each.name) for each in fields(value)}
    return f"Command({', '.join(f'{name}={_literal(each)}' for name, each in values.items() if each)})"


def _when(when: Any) -> str:
    match when:
        case Cron(expression, zone, variance):
            more = "" if zone == "UTC" else f", tz={_literal(zone)}"
            return f"cron({_literal(expression)}{more}{_variance(variance)})"
        case Interval(seconds, anchored, variance):
            unit, size = next((unit, size) for unit, size in UNITS if seconds % size == 0)
            return (
                f"every({unit}={seconds // size}{', anchored=True' if anchored else ''}{_variance(variance)})"
            )
        case datetime():
            moment = f'datetime.fromisoformat("{when.astimezone(UTC).isoformat()}")'
            return f"delay=max({moment} - datetime.now(UTC), timedelta())"
        case _:
            return '"on_demand"'


def _variance(seconds: int | None) -> str:
    return f", variance=timedelta(seconds={seconds})" if seconds else ""


def _value(value: Any) -> str:
    match value:
        case timedelta():
            return "NO_LIMIT" if value == NO_LIMIT else f"timedelta(seconds={value // timedelta(seconds=1)})"
        case DaysOfWeek(days):
            return f"exclude.days_of_week({', '.join(_literal(DAYS[day][:3]) for day in days)})"
        case Misfire(MisfirePolicy.FIRE_ALL):
            return f"fire_all({value.limit})"
        case _:
            return _literal(value)


def _literal(value: Any) -> str:
    """Plain data as Python source, with double quotes."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_literal, cast('list[Any]', value)))}]"
        case dict():
            items = cast("dict[Any, Any]", value).items()
            return f"{{{', '.join(f'{_literal(name)}: {_literal(each)}' for name, each in items)}}}"
        case _:
            return repr(value)
