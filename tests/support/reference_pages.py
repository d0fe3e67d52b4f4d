"""The pages of docs/reference/ that are made from the code.

`python -m tests.support.reference_pages` writes them.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.support import observability_page, settings_page
from tests.support.reference import code, defaults_of, fields_table, signature, table

import trax
from trax import cron, errors, exclude
from trax.cli import build_parser
from trax.engine.enqueue import QueueKeywords
from trax.records import DeadLetter, LogLine, Manifest, ManifestGroup, Metadata, Reason, WorkQueueEntry
from trax.schedule.builder import Declarations
from trax.schedule.cron import CronWriter
from trax.schedule.declaration import Group, Item, ScheduleKeywords
from trax.schedule.every import every
from trax.schedule.misfire import fire_all
from trax.train import Retry
from trax.train.options import TrainKeywords, TrainOptions
from trax.worker.hooks import HOOK_NAMES, Hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"
RECORDS = (Metadata, WorkQueueEntry, Manifest, ManifestGroup, DeadLetter, LogLine, Reason)
CRONS = ("secondly", "minutely", "hourly", "daily", "weekly", "monthly")
EXCLUSIONS = ("days_of_week", "dates", "date_range", "time_window", "outside")


def trains() -> str:
    return f"""\
# Train options

Keywords of `app.train(name, route, …)` and `@app.train(…)`; see
[Define a train](../how-to/define-a-train.md).

{fields_table(TrainKeywords, defaults_of(TrainOptions))}
## Retry

{said(Retry)} See [Retry a job](../how-to/retry-a-job.md).

{fields_table(Retry, defaults_of(Retry))}
## Hooks

Of the app, for every train; a train has all but the last for itself. See
[Call a hook](../how-to/call-a-hook.md).

{calls({f"app.{name}": getattr(Hooks, name) for name in HOOK_NAMES}, brief=True)}"""


def schedules() -> str:
    return f"""\
# Schedule options

Keywords of `app.schedule`, `schedule_many`, `schedule_once`, `include` and `then_include`, and of the same
verbs of `app.manifests`; see [Schedule a job](../how-to/schedule-a-job.md). What is left out is left to the
train, and then to the [settings](settings.md).

{fields_table(ScheduleKeywords)}
## When

{calls({"every": every, "cron": cron.__call__} | {f"cron.{one}": getattr(CronWriter, one) for one in CRONS})}
## What was missed

{calls({"fire_all": fire_all})}
## When not

For the option `exclude`; see [Exclude times](../how-to/exclude-times.md).

{calls({f"exclude.{one}": getattr(exclude, one) for one in EXCLUSIONS})}
Manifests can share their windows:

{calls({"app.calendar": Declarations.calendar})}
## One of a batch

{said(Item)}

{fields_table(Item)}"""


def queueing() -> str:
    return f"""\
# Queue options

Keywords of `app.queue` and `app.sync.queue`, and but for `unique` of both `queue_many`; see
[Queue a job](../how-to/queue-a-job.md).

{fields_table(QueueKeywords)}"""


def groups() -> str:
    return f"""\
# Group options

Keywords of `app.group(name, …)`, of `Group(name, …)` as the `group` of a schedule, and of
`app.groups.update(name, …)`; see [Limit a group](../how-to/limit-a-group.md). What is left out stays as it
is, also what an operator has changed.

{fields_table(Group)}"""


def records() -> str:
    head = """\
# Records

What the resources of an app give: frozen values, with the same names in Python, in JSON and on the command
line. Moments are aware and in UTC.

"""
    return head + "\n".join(f"## {kind.__name__}\n\n{said(kind)}\n\n{fields_table(kind)}" for kind in RECORDS)


def failures() -> str:
    tree = (errors.__doc__ or "").partition("\n\n")[2].strip()
    kinds = [
        kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.TraxError)
    ]
    rows = [(code(_address(kind)), said(kind)) for kind in kinds]
    return f"""\
# Errors

```
{tree}
```

{table(("Name", "Meaning"), rows)}"""


def commands() -> str:
    with patch.object(sys, "argv", ["trax"]):  # or the name of this program stands in every usage
        text = build_parser().generate_docs()
    return text.replace("# trax\n", "# The command line\n", 1).rstrip() + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "trains.md": trains,
    "schedules.md": schedules,
    "queue.md": queueing,
    "groups.md": groups,
    "settings.md": settings_page.page,
    "records.md": records,
    "errors.md": failures,
    "observability.md": observability_page.page,
    "commands.md": commands,
}


def said(thing: Any, *, whole: bool = False) -> str:
    """The first lines of a docstring, or the whole of it."""
    words = inspect.getdoc(thing)
    assert words, f"{thing!r} needs a docstring"
    return " ".join((words if whole else words.partition("\n\n")[0]).split())


def calls(functions: Mapping[str, Callable[..., Any]], *, brief: bool = False) -> str:
    """One row a function: how it is called, unless `brief`, and what it is for."""
    rows = [
        (code(name if brief else signature(name, function)), said(function, whole=True))
        for name, function in functions.items()
    ]
    return table(("Call", "Meaning"), rows)


def _address(kind: type) -> str:
    return f"trax.{kind.__name__}" if kind.__name__ in trax.__all__ else f"trax.errors.{kind.__name__}"


if __name__ == "__main__":
    for name, build in PAGES.items():
        (FOLDER / name).write_text(build(), encoding="utf-8")
