"""The manifests as a Python module that runs, with trains to fill in."""

from __future__ import annotations

import json
import keyword
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final, cast

from trax.cli.importing.foreign import NO_LIMIT, Command
from trax.cli.showing import in_line
from trax.records.states import MisfirePolicy
from trax.records.when import Cron, DaysOfWeek, Interval, Misfire
from trax.schedule.days import DAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trax.cli.importing.foreign import Foreign

UNITS: Final = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
OURS: Final = ("cron", "every", "exclude", "fire_all")
TAKEN: Final = {"app", "shell", "datetime", "timedelta", *OURS}
LONGEST: Final = f"""\
# Where these came from nothing ended a run for taking long. This is the longest timeout there is: give each
# schedule one that fits. Without a timeout, default_job_timeout (20 minutes) ends a run.
NO_LIMIT = timedelta(days={NO_LIMIT.days})

"""
SHELL: Final = '''
class Command(BaseModel):
    """A line of the crontab."""

    line: str
    stdin: str = ""
    environment: dict[str, str] = {}


@app.train
def shell(command: Command) -> None:
    """What cron did with a line. Replace it by trains of your own, line by line."""
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


def as_python(found: Sequence[Foreign], source: str) -> str:
    """One module: what it needs, the trains, and a schedule for each entry."""
    names = _train_names(found)
    limit = [LONGEST] if any(one.timeout == NO_LIMIT for one in found) else []
    body = "".join([*limit, *_trains(found, names), *("\n" + _schedule(one, names) for one in found)])
    shown_source = in_line(source).replace("\\", "/").replace('"', "'")
    head = f'"""Moved in from {shown_source}."""\n\nfrom __future__ import annotations\n\n'
    return f"{head}{_imports(body)}\napp = Trax()\n\n{body}"


def _imports(body: str) -> str:
    """Those that the text below makes use of."""
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
    ours = [word for word in OURS if re.search(rf"\b{word}[.(]", body)]
    others = ["from pydantic import BaseModel\n"] if "BaseModel" in body else []
    break_ = ["\n"] if lines else []
    return "".join([*lines, *break_, *others, f"from trax import {', '.join(['Trax', *ours])}\n"])


def _trains(found: Sequence[Foreign], names: Mapping[str, str]) -> Iterator[str]:
    if any(isinstance(one.input, Command) for one in found):
        yield SHELL
    for task, name in names.items():
        parameter = _parameter(one.input for one in found if one.task == task)
        yield (
            f"\n@app.train\ndef {name}({parameter}) -> None:\n"
            f"    raise NotImplementedError({_literal(f'what {task} did')})\n\n"
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


def _train_names(found: Sequence[Foreign]) -> dict[str, str]:
    """The function for each task: its own name, with where it is from when two are called alike."""
    names: dict[str, str] = {}
    for one in found:
        if one.task in names or isinstance(one.input, Command):
            continue
        whole = _identifier(one.task)
        numbered = (f"{whole}_{number}" for number in count(2))
        wanted = chain((_identifier(one.task.rpartition(".")[2]), whole), numbered)
        names[one.task] = next(name for name in wanted if name not in {*names.values(), *TAKEN})
    return names


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text).strip("_").lower() or "job"
    return f"{name}_" if keyword.iskeyword(name) else f"job_{name}" if name[0].isdigit() else name


def _schedule(one: Foreign, names: Mapping[str, str]) -> str:
    verb = "schedule_once" if isinstance(one.when, datetime) else "schedule"
    said = [names.get(one.task, "shell"), _literal(one.external_id), _input(one.input), _when(one.when)]
    said += [f"{name}={_value(value)}" for name, value in one.options.items()]
    said.append(f"timeout={_value(one.timeout)}")
    remarks = "".join(f"# {in_line(text)}\n" for text in (one.written, *one.remarks))
    lines = "".join(f"    {each},\n" for each in said)
    return f"{remarks}app.{verb}(\n{lines})\n"


def _input(value: Any) -> str:
    if not isinstance(value, Command):
        return _literal(value)
    given = {each.name: getattr(value, each.name) for each in fields(value)}
    return f"Command({', '.join(f'{name}={_literal(each)}' for name, each in given.items() if each)})"


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
    """Plain data as Python, with the quotes that formatters like."""
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
