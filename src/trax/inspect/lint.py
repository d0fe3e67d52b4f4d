"""`trax lint`: find problems in an app from its code alone; `--queued` also checks queued inputs.

Most mistakes raise where they are declared. These are valid one by one but not together: a schedule that
never fires, a group that admits nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.engine.seed import parents_outside
from trax.errors import DefinitionError, InvalidInput, UnknownTrain, count_noun
from trax.records.schedule import Cron
from trax.schedule.cron import next_occurrence
from trax.schedule.exclusions import first_allowed
from trax.store.migrations import ensure_current
from trax.store.queue.queue_lists import load_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from trax.schedule.declaration import Declaration, Timetable
    from trax.store import Connection, Store
    from trax.store.queue.queue_lists import WaitingInput
    from trax.worker.app_context import AppContext


LOOKAHEAD: Final = timedelta(days=4 * 365 + 1)
"""Long enough to include a leap day."""


def lint(context: AppContext, *, now: datetime) -> list[str]:
    """The problems found, one line each."""
    return list(dict.fromkeys([*_train_problems(context), *_schedule_problems(context, now)]))


def _train_problems(context: AppContext) -> Iterator[str]:
    for train in context.trains:
        try:
            context.submitters.check([train])
        except DefinitionError as wrong:
            yield str(wrong)
        problem = context.parameters.output_problem(train)
        if problem is not None and context.settings.save_outputs:
            yield f"{problem}; no record will have it: return a model, a dataclass, plain data or None"
    if context.settings.max_active_jobs == 0:
        yield "max_active_jobs is 0: no job of this app ever starts; set a positive number or None"


def _schedule_problems(context: AppContext, now: datetime) -> Iterator[str]:
    timetable = context.declarations.timetable()
    yield from _group_problems(timetable)
    yield from _parent_problems(timetable)
    for each in timetable.manifests:
        yield from _time_problems(each, now)


def _group_problems(timetable: Timetable) -> Iterator[str]:
    for group in timetable.groups:
        if group.max_active_jobs == 0:
            yield (
                f"group {group.name!r} has max_active_jobs=0: nothing in it ever starts; "
                "use enabled=False to switch the group off"
            )


def _parent_problems(timetable: Timetable) -> Iterator[str]:
    elsewhere = parents_outside(timetable.manifests)
    disabled = {each.external_id for each in timetable.manifests if each.enabled is False}
    for each in timetable.manifests:
        place = f"manifest {each.external_id!r} depends on {each.depends_on!r}"
        if each.depends_on in elsewhere:
            yield f"{place}, which this code does not declare: it must be in the database when the app starts"
        if each.depends_on in disabled and each.enabled is not False:
            yield f"{place}, which is disabled: it runs only when triggered"


def _time_problems(declaration: Declaration, now: datetime) -> Iterator[str]:
    place = f"manifest {declaration.external_id!r}"
    if isinstance(declaration.schedule, Cron) and not _has_occurrence(declaration.schedule, now):
        yield f"{place}: {declaration.schedule.expression!r} has no occurrence within four years"
    zone = declaration.schedule.time_zone if isinstance(declaration.schedule, Cron) else "UTC"
    if first_allowed(declaration.exclusions, zone, now) is None:
        yield f"{place}: its exclusions leave no moment free within ten years; it never runs"


def _has_occurrence(cron: Cron, now: datetime) -> bool:
    try:
        return next_occurrence(cron, now) <= now + LOOKAHEAD
    except DefinitionError:
        return False


PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableInputs:
    """Inputs of one train that are invalid for the same reason, with an example."""

    train: str
    fields: tuple[str, ...]
    count: int
    example: str

    def __str__(self) -> str:
        inputs = count_noun(self.count, "queued input")
        return f"train {self.train!r}: {inputs} cannot be decoded: {'; '.join(self.fields)} ({self.example})"


@dataclass(frozen=True, slots=True)
class QueuedLintResult:
    """How many inputs were checked, whether those were all, and which are unreadable."""

    count: int
    is_all: bool
    unreadable: list[UnreadableInputs]


def lint_queued(
    context: AppContext, *, limit: int | None = None, on_progress: Callable[[int], None] = lambda _: None
) -> QueuedLintResult:
    """Check all queued inputs, or the `most` oldest; `on_progress` is called with the number checked."""
    store = context.store.build_store_as_is()
    if store is None:
        return QueuedLintResult(0, is_all=True, unreadable=[])
    try:
        store.read(ensure_current)
        return _lint_inputs(context, store, limit, on_progress)
    finally:
        store.close()


def _lint_inputs(
    context: AppContext, store: Store, limit: int | None, on_progress: Callable[[int], None]
) -> QueuedLintResult:
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    examples: dict[tuple[str, tuple[str, ...]], str] = {}
    checked, last = 0, None
    while some := _next_page(store, last, PAGE if limit is None else min(PAGE, limit - checked)):
        for waiting in some:
            if fields := _find_invalid_fields(context, waiting):
                counts[waiting.train, fields] += 1
                examples.setdefault((waiting.train, fields), f"{waiting.kind} {waiting.id}")
        checked, last = checked + len(some), some[-1]
        on_progress(checked)
    unreadable = [
        UnreadableInputs(train=train, fields=fields, count=count, example=examples[train, fields])
        for (train, fields), count in counts.most_common()
    ]
    return QueuedLintResult(checked, is_all=limit is None or checked < limit, unreadable=unreadable)


def _next_page(store: Store, after: WaitingInput | None, limit: int) -> Sequence[WaitingInput]:
    def read(connection: Connection) -> Sequence[WaitingInput]:
        return load_page(connection, after=after, limit=limit)

    return store.read(read) if limit else ()


def _find_invalid_fields(context: AppContext, waiting_input: WaitingInput) -> tuple[str, ...]:
    """The invalid fields and reasons, without the values, so that equal problems are counted together."""
    try:
        context.parameters.input_codec(context.trains.get(waiting_input.train)).decode(
            waiting_input.input or "null"
        )
    except UnknownTrain:
        return ("this code does not define the train",)
    except InvalidInput as refused:
        return tuple(f"{error.path or 'the value itself'}: {error.message}" for error in refused.errors)
    except Exception as broken:  # noqa: BLE001 - validators are user code
        return (f"its validator raised {type(broken).__name__}: {broken}",)
    return ()
