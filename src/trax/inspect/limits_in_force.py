"""Which limits were in force when: from the audit log, the groups and the stored settings. No I/O.

A limit is a number, None (no limit) or NOT_KNOWN. Before its first record a limit is NOT_KNOWN; it is not
guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from trax.bounds import load_json
from trax.clock import parse_duration
from trax.engine.live_settings import EXEMPT_TRAINS, GLOBAL_LIMIT, RETENTION
from trax.records.audit import DECLARED_SETTINGS
from trax.store.recorded_changes import LimitChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from trax.store.recorded_changes import GroupRow

BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)
SETTLING: Final = timedelta(seconds=60)
"""For this long after a change the old limit is accepted too: a change is dated before its commit, and a
visit to the gate may have read the old limit."""


class NotKnown(Enum):
    """A limit that is in no record."""

    NOT_KNOWN = "not known"


NOT_KNOWN: Final = NotKnown.NOT_KNOWN
Limit: TypeAlias = int | NotKnown | None
Step: TypeAlias = tuple[datetime, Any]


class LimitTimeline:
    """A limit over time; `at` returns the most permissive one that may have been in force."""

    def __init__(self, steps: Iterable[tuple[datetime, Limit]]) -> None:
        """Each step is a moment and the limit from then on; before the first it is not known."""
        changes = _Steps([(BEGINNING, NOT_KNOWN), *steps])
        moments = sorted({*changes.moments, *(at + SETTLING for at in changes.moments)})
        self._limits = _Steps([(moment, _most_permissive(changes, moment)) for moment in moments])

    def at(self, moment: datetime) -> Limit:
        return self._limits.at(moment)

    def limit_since(self, since: datetime, now: datetime) -> Limit:
        """The limit now, if it was in force all the time since then."""
        has_changed = any(since < moment <= now for moment in self._limits.moments)
        return NOT_KNOWN if has_changed else self._limits.at(now)


class ExemptTrains:
    """Which trains were exempt from the limits when, as the dispatching servers have declared it.

    For a while after a change the trains of before count, too: an old server may still dispatch.
    """

    def __init__(self, changes: Iterable[LimitChange]) -> None:
        declared = [change for change in changes if change.action == DECLARED_SETTINGS]
        self._steps = _Steps([(change.at, _server_lists(change.after)) for change in declared])

    def contradicts(self, train: str, moment: datetime, *, exempt: bool) -> bool | None:
        """Whether no server can have admitted the train like that; None: it is not known."""
        found = self._steps.within(moment)
        if found[-1] is NOT_KNOWN or None in found:
            return None
        lists = [each for one in found if one is not NOT_KNOWN for each in one]
        return all((train in each) is not exempt for each in lists)


def _server_lists(after: Any) -> list[frozenset[str]] | None:
    """The exempt trains of each dispatching server; None if they are in no record."""
    found = after.get(EXEMPT_TRAINS)
    if found is None:
        return None
    servers = cast("dict[str, list[list[str]]]", found) if isinstance(found, dict) else {"servers": [found]}
    return [frozenset(each) for each in servers["servers"]]


def build_declared_changes(declared: Iterable[tuple[datetime, Mapping[str, Any]]]) -> list[LimitChange]:
    """What a process declared that has no row of its own, in the form of audit entries."""
    return [
        LimitChange(0, at, DECLARED_SETTINGS, "setting", [GLOBAL_LIMIT], None, after, None, None)
        for at, after in declared
    ]


class _Steps:
    """Values over time, each from its moment on."""

    def __init__(self, steps: Iterable[Step]) -> None:
        ordered = sorted(steps, key=_moment)
        self.moments = [at for at, _ in ordered]
        self.values = [value for _, value in ordered]

    def at(self, moment: datetime) -> Any:
        place = bisect_right(self.moments, moment)
        return self.values[place - 1] if place else NOT_KNOWN

    def within(self, moment: datetime) -> list[Any]:
        """The values that were in force within the settling period until this moment; never empty."""
        begins = moment - SETTLING if moment > BEGINNING + SETTLING else BEGINNING
        first, end = bisect_right(self.moments, begins), bisect_right(self.moments, moment)
        return self.values[max(0, first - 1) : end] or [NOT_KNOWN]


def exceeds(active: int, limit: Limit) -> bool:
    """Whether a run that is admitted while this many are active exceeds the limit."""
    return isinstance(limit, int) and active >= limit


def group_timelines(
    groups: Iterable[GroupRow], changes: Sequence[LimitChange], *, is_complete: bool
) -> dict[int, LimitTimeline]:
    """The limits of each group, by its id; a disabled group has the limit 0.

    `is_complete`: no entry of the audit log has been deleted.
    """
    complete_from = _complete_from(changes) if is_complete else None
    timelines: dict[int, LimitTimeline] = {}
    for group, own in _changes_by_group(groups, changes):
        limits = _field_steps(group, own, "max_active_jobs", complete_from)
        states = _field_steps(group, own, "enabled", complete_from)
        timelines[group.id] = LimitTimeline(_join(limits, states, _limit_if_enabled))
    return timelines


def last_enabled_changes(
    groups: Iterable[GroupRow], changes: Sequence[LimitChange], *, is_complete: bool
) -> dict[int, datetime]:
    """Since when each group has certainly been enabled or disabled as it is now, by its id."""
    complete_from = _complete_from(changes) if is_complete else None
    return {
        group.id: _field_steps(group, own, "enabled", complete_from)[-1][0]
        for group, own in _changes_by_group(groups, changes)
    }


def _changes_by_group(
    groups: Iterable[GroupRow], changes: Sequence[LimitChange]
) -> Iterator[tuple[GroupRow, list[LimitChange]]]:
    """Each group with the changes of its limits, but not those of a deleted group with the same name."""
    by_name: dict[str, list[LimitChange]] = {}
    for change in changes:
        if change.noun == "group":
            for name in change.ids:
                by_name.setdefault(name, []).append(change)
    for group in groups:
        yield group, [change for change in by_name.get(group.name, ()) if change.at >= group.created_at]


def global_timeline(changes: Sequence[LimitChange], stored: tuple[str, datetime] | None) -> LimitTimeline:
    """The global limit: what operators have stored, else what the dispatching servers had from code.

    `stored` is the stored value now, as JSON text, and since when. Servers may have different limits: then
    the largest counts.
    """
    declared = [
        (change.at, _largest(change.after[GLOBAL_LIMIT]))
        for change in changes
        if change.action == DECLARED_SETTINGS
    ]
    edits = [change for change in changes if change.noun == "setting" and change.action != DECLARED_SETTINGS]
    edits = [change for change in edits if GLOBAL_LIMIT in (change.expects or {})]
    return LimitTimeline(_join(declared, _setting_steps(edits, stored), _effective_limit))


def shortest_retention(
    changes: Iterable[LimitChange], stored: tuple[str, datetime] | None
) -> timedelta | None:
    """The shortest time for which resolved dead letters were ever kept; None if it is not known."""
    declared: list[Any] = []
    edited: list[Any] = [] if stored is None else [stored[0]]
    for change in changes:
        if change.action == DECLARED_SETTINGS:
            declared.append(change.after.get(RETENTION))
        elif change.noun == "setting":
            rows: list[dict[str, Any]] = [change.restores or {}, change.expects or {}]
            edited += [row.get(RETENTION) for row in rows]
    texts = [*declared, *(load_json(text) for text in edited if text is not None)]
    if not declared or not all(isinstance(text, str) for text in texts):
        return None
    try:
        return min(map(parse_duration, texts))
    except ValueError:
        return None


def _setting_steps(edits: Sequence[LimitChange], stored: tuple[str, datetime] | None) -> list[Step]:
    """The stored text of the setting over time; None: no row."""
    if edits:
        first = edits[0].restores.get(GLOBAL_LIMIT)
        return [(BEGINNING, first), *((edit.at, edit.expects[GLOBAL_LIMIT]) for edit in edits)]
    if stored is not None:
        return [(stored[1] + SETTLING, stored[0])]
    return [(BEGINNING, None)]


def _effective_limit(declared: Any, stored: Any) -> Limit:
    if stored is NOT_KNOWN or stored is None:
        return NOT_KNOWN if stored is NOT_KNOWN else declared
    try:
        value = load_json(stored)
    except ValueError:
        return NOT_KNOWN
    return value if value is None or isinstance(value, int) else NOT_KNOWN


def _largest(declared: Any) -> Limit:
    """The limit of one server, or the largest of several."""
    limits = cast("list[int | None]", declared if isinstance(declared, list) else [declared])
    return None if None in limits else max(limit for limit in limits if limit is not None)


def _field_steps(
    group: GroupRow, changes: Sequence[LimitChange], field: str, complete_from: datetime | None
) -> list[Step]:
    """The values of one field of a group over time."""
    own = [change for change in changes if field in (change.after or {})]
    if own:
        first = own[0].before[field]
        known_from = own[0].at if complete_from is None else max(group.created_at, complete_from)
        return [(known_from, first), *((change.at, change.after[field]) for change in own)]
    value = getattr(group, field)
    is_unchanged = group.updated_at == group.created_at
    if is_unchanged or (complete_from is not None and complete_from <= group.created_at):
        return [(group.created_at, value)]
    return [(group.updated_at + SETTLING, value)]


def _complete_from(changes: Sequence[LimitChange]) -> datetime | None:
    """Since when the audit log has every change of a limit; None if that is not certain.

    A server that starts records its limits, so that every server since then records changes too.
    """
    declared = [change.at for change in changes if change.action == DECLARED_SETTINGS]
    return declared[0] - SETTLING if declared else None  # it has written its groups shortly before


def _limit_if_enabled(limit: Any, enabled: Any) -> Limit:
    if enabled is NOT_KNOWN or limit is NOT_KNOWN:
        return NOT_KNOWN
    return limit if enabled else 0


def _join(first: Sequence[Step], second: Sequence[Step], combine: Callable[[Any, Any], Limit]) -> list[Step]:
    """Combine two values over time into one. Of two values at one moment, both are kept, in order."""
    merged = sorted(
        [*((at, 0, value) for at, value in first), *((at, 1, value) for at, value in second)], key=_moment
    )
    joined: list[Step] = []
    current: list[Any] = [NOT_KNOWN, NOT_KNOWN]
    for at, side, value in merged:
        current[side] = value
        joined.append((at, combine(*current)))
    return joined


def _moment(step: tuple[Any, ...]) -> datetime:
    return step[0]


def _most_permissive(changes: _Steps, moment: datetime) -> Limit:
    """The most permissive of the limits that were in force within the settling period until this moment.

    One that is not known counts only if it is the last: before the first record there was no server.
    """
    limits = changes.within(moment)
    if limits[-1] is NOT_KNOWN:
        return NOT_KNOWN
    known = [limit for limit in limits if limit is not NOT_KNOWN]
    return None if None in known else max(known)


def limit_text(limit: Limit) -> str:
    return "none" if limit is None else "not known" if limit is NOT_KNOWN else str(limit)
