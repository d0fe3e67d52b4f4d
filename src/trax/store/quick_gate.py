"""A whole visit to the gate in one round trip, on PostgreSQL, for the case that needs no decision.

In this case the worker at the gate can run all entries at the head of the queue, and no group is full: then
the first entries are admitted, as many as there are slots and the global limit allows. One statement reads
the queue from the bound of the last visit, counts the active runs, and admits. It reads from one snapshot,
taken under the gate lock, so the limits are as exact as those of a visit in two steps.

The same statement checks whether this case applies. If not, it admits nothing, and the next visit reads and
decides as usual.
"""

# ruff: noqa: S608 - the parts of the statements are constants of the code

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import text

from trax.bounds import LARGEST_ID
from trax.store.admission import COPIED_COLUMNS
from trax.store.dialect import gate_lock
from trax.store.gate_memory import (
    COUNT_FROM_BOUND,
    IN_ORDER,
    MARKS,
    MAX_NEW_ENTRIES,
    READ_FROM_BOUND,
    SELECT_OLDEST,
    SESSION_MARK,
    START_BOUND,
    Candidate,
    GateBounds,
    GateMarks,
    RunBound,
    count_parameters,
    next_queue_bound,
    next_run_bound,
    queue_parameters,
)
from trax.store.runs.claim import PENDING_HERE, Claimed
from trax.store.schema.manifest import BOUND
from trax.store.schema.work_queue import DELAYED, MAY_WAIT, PARKED, READY
from trax.store.types import POSTGRESQL
from trax.store.workers import IN_FLEET, FleetMark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from trax.store.gate_memory import GateMemory
    from trax.store.pipeline import BoundStatement, Rows
    from trax.store.runs.claim import ClaimRequest


NO_RUNS: Final = RunBound(LARGEST_ID)
"""The bound of a visit that does not count active runs."""


class QuickTerms(NamedTuple):
    """The conditions under which the last visit needed no decision; a quick visit requires the same ones."""

    settings: str
    """The settings edited by operators, as one text."""
    max_active_jobs: int | None
    max_queued_jobs_per_cycle: int | None
    trains: tuple[str, ...]
    """The trains that the worker runs, under the limits and not in a process of their own."""
    fleet: str
    """The mark of the fleet, which changes when a worker or server starts or stops."""


class QuickVisit(NamedTuple):
    """What a quick visit has admitted, all of it for the worker at the gate."""

    claimed: list[Claimed]
    entry_ids: list[int]
    has_more: bool
    """Whether ready entries are left."""
    active: int | None
    """The active runs under the limits before the visit; None if there is no limit."""
    seconds_to_next_delayed: float | None
    is_plain: bool
    """Whether no decision was needed; if one was, nothing was admitted."""
    has_same_terms: bool
    """Whether the terms still applied; if not, the next visit finds new ones."""


def fleet_text(mark: FleetMark) -> str:
    """The mark of the fleet, as the statement compares it."""
    return ",".join(map(str, mark))


def settings_text(rows: Mapping[str, str]) -> str:
    """The rows of edited settings, as the statement compares them."""
    return "\n".join(f"{name}={rows[name]}" for name in sorted(rows))


class Opening(NamedTuple):
    """What a dispatcher reads before its first visit, so that this one may be a quick visit, too."""

    settings: str
    """The settings edited by operators, as in `QuickTerms`."""
    fleet: FleetMark
    has_workers_elsewhere: bool
    """Whether there are workers that do not dispatch themselves."""


def bind_opening(*, has_global_limit: bool) -> list[BoundStatement]:
    """Read the opening under the gate lock: without it, a run that is being admitted may be missed."""
    return [*gate_lock(POSTGRESQL), (_OPENING, {"is_bound": has_global_limit})]


def read_opening(rows: Rows, memory: GateMemory) -> Opening:
    """Read the rows of the last of these statements; the memory gets the bounds that it lacks."""
    [[oldest, settings, fleet, has_workers_elsewhere, *marks]] = rows
    found = GateMarks._make(marks)
    memory.note_opening()
    bounds = memory.take()
    if not memory.has_seen(found):
        bounds = GateBounds()
    queue = bounds.queue or START_BOUND._replace(snapshot=found.snapshot)
    memory.remember(GateBounds(queue, bounds.runs or next_run_bound(found, [], oldest, None)))
    return Opening(settings, FleetMark(*map(int, fleet.split(","))), has_workers_elsewhere)


class BoundVisit(NamedTuple):
    """The statements of a quick visit, one transaction, and what is needed to read the rows of the last."""

    statements: list[BoundStatement]
    memory: GateMemory
    bounds: GateBounds


def bind_visit(
    terms: QuickTerms, memory: GateMemory, request: ClaimRequest, *, now: datetime | None
) -> BoundVisit:
    """Bind the statements. The memory must have a bound for the queue, and one for active runs if counted."""
    bounds = memory.take(is_quick=True)
    assert bounds.queue is not None  # noqa: S101 - else there are no terms
    limit = terms.max_active_jobs
    parameters: dict[str, Any] = {
        **queue_parameters(bounds.queue),
        **count_parameters(bounds.runs or NO_RUNS, has_global_limit=limit is not None),
        "can_count": bounds.runs is not None,
        "most": min(request.places, LARGEST_ID if limit is None else limit) + 1,
        "slots": request.slots,
        "places": request.places,
        "sessions": list(memory.sessions),
        "settings": terms.settings,
        "trains": list(terms.trains),
        "max_active": limit,
        "max_per_group": terms.max_queued_jobs_per_cycle,
        "worker_id": request.worker_id,
        "host": request.host,
        "fleet": terms.fleet,
        "now": now,
    }
    return BoundVisit([*gate_lock(POSTGRESQL), (_VISIT, parameters)], memory, bounds)


def read_visit(bound: BoundVisit, rows: Rows) -> QuickVisit:
    """Read the rows of a visit that is committed, and remember from where the next one may read."""
    _, memory, bounds = bound
    found = _parse(rows)
    memory.note_visit(has_same_terms=found.visit.has_same_terms)
    if not memory.has_seen(found.marks):
        return found.visit  # without bounds, so that the next visit reads from the start
    if found.visit.has_same_terms and not found.visit.is_plain:
        memory.forbid_quick()
    assert bounds.queue is not None  # noqa: S101 - as above
    queue = bounds.queue
    if found.last is not None:
        last, is_cut = found.last, found.visit.has_more
        queue = next_queue_bound(found.marks, [last], {last.id}, queue, is_cut=is_cut)
    memory.remember(GateBounds(queue, next_run_bound(found.marks, found.counts, None, bounds.runs)))
    return found.visit


class _Found(NamedTuple):
    visit: QuickVisit
    marks: GateMarks
    last: Candidate | None
    """The last of the admitted entries."""
    counts: list[tuple[None, int, int | None]]
    """The active runs and the lowest id among them, if they were counted."""


def _parse(rows: Sequence[tuple[Any, ...]]) -> _Found:
    """Each row is an admitted run and the id of its entry, in order; the last one has all the rest."""
    size = len(Claimed._fields)
    group_priority, created_at, same_terms, is_plain, listed, active, first_active, seconds, *marks = rows[
        -1
    ][size + 1 :]
    claimed = [Claimed._make(row[:size]) for row in rows if row[0] is not None]
    last = None
    if claimed:
        end = claimed[-1]
        order = (group_priority, end.priority, created_at)
        last = Candidate(rows[-1][size], end.train, None, None, False, *order)  # noqa: FBT003
    visit = QuickVisit(
        claimed=claimed,
        entry_ids=[row[size] for row in rows] if claimed else [],
        has_more=listed > len(claimed),
        active=active,
        seconds_to_next_delayed=seconds,
        is_plain=is_plain,
        has_same_terms=same_terms,
    )
    counts = [] if active is None else [(None, active, first_active)]
    return _Found(visit, GateMarks._make(marks), last, counts)


_COPIED: Final = ", ".join(COPIED_COLUMNS)
_NOW: Final = "coalesce(CAST(:now AS timestamptz), clock_timestamp())"
"""Not the time of the statement, which is before its snapshot: no run starts before the recorded end of the
run whose capacity it uses."""
_LAST_COLUMNS: Final = ", ".join(
    f"CASE WHEN metadata_id IS NULL OR metadata_id = max(metadata_id) OVER () THEN {column} END"
    for column in (
        *("group_priority", "created_at"),
        *("has_same_terms", "is_plain", "listed_entries", "active_runs", "first_active", "delayed_seconds"),
        *("CAST(pg_current_snapshot() AS text)", SESSION_MARK),
        "coalesce((SELECT max(id) FROM trax.metadata), 0)",
    )
)


def _in_one_line(statement: str) -> str:
    """The driver caches the conversion of a statement only if it has fewer than 4,096 characters."""
    return " ".join(statement.split())


_SETTINGS: Final = """
    SELECT coalesce(string_agg(name || '=' || CAST(value AS text), chr(10) ORDER BY name), '')
    FROM trax.setting
"""
_FLEET: Final = f"""
    SELECT concat_ws(',', count(*), coalesce(max(id), 0), coalesce(sum(id), 0))
    FROM trax.worker WHERE {IN_FLEET}
"""

_OTHERS_WAIT: Final = "({})".format(
    " OR ".join(
        f"EXISTS (SELECT FROM trax.work_queue WHERE {READY} AND work_queue.{other})"
        for other in ("group_id < g.id", "group_id > g.id", "group_id IS NULL")
    )
)
"""Whether ready entries wait that are not of the group `g`."""

_OPENING: Final = text(
    f"""
    SELECT ({SELECT_OLDEST}), ({_SETTINGS}), ({_FLEET}),
           EXISTS (SELECT FROM trax.worker WHERE kind = 'worker' AND NOT dispatches),
           {MARKS}
    """
)

_VISIT: Final = text(
    _in_one_line(
        f"""
    WITH {READ_FROM_BOUND},
    listed AS MATERIALIZED (
        SELECT id, train, group_id, dead_letter_id, {MAY_WAIT[POSTGRESQL]} AS may_wait,
               row_number() OVER () AS place
        FROM (SELECT * FROM found ORDER BY {IN_ORDER} LIMIT :most) AS first_entries
    ),
    active AS MATERIALIZED ({COUNT_FROM_BOUND}),
    wanted AS (SELECT group_id, count(*) AS entries FROM listed WHERE group_id IS NOT NULL GROUP BY group_id),
    terms AS MATERIALIZED (
        SELECT
            current_setting('trax.session', true) = ANY (CAST(:sessions AS text[]))
            AND ({_SETTINGS}) = :settings
            AND (:can_count OR NOT EXISTS (SELECT FROM trax.manifest_group WHERE {BOUND}))
            AND ({_FLEET}) = :fleet AS has_same_terms
    ),
    visit AS MATERIALIZED (
        SELECT
            has_same_terms
            AND (SELECT count(*) FROM new) <= {MAX_NEW_ENTRIES}
            AND NOT EXISTS (
                SELECT FROM listed
                WHERE dead_letter_id IS NOT NULL OR train <> ALL (CAST(:trains AS text[])))
            AND NOT EXISTS (
                SELECT FROM wanted JOIN trax.manifest_group AS g ON g.id = wanted.group_id
                LEFT JOIN active ON active.group_id = g.id
                WHERE entries > CAST(:max_per_group AS bigint)
                      AND (SELECT count(*) FROM listed) > :places AND {_OTHERS_WAIT}
                   OR ({BOUND})
                      AND entries + coalesce(runs, 0) > CASE WHEN enabled THEN max_active_jobs ELSE 0 END)
            AND NOT EXISTS (SELECT FROM trax.metadata WHERE {PENDING_HERE})
            AND NOT EXISTS (SELECT FROM trax.work_queue WHERE {PARKED})
            AND coalesce(next_delayed > read_at, true) AS is_plain,
            has_same_terms,
            (SELECT count(*) FROM listed) AS listed_entries,
            (SELECT CAST(sum(runs) AS bigint) FROM active) AS active_runs,
            (SELECT min(first) FROM active) AS first_active,
            CAST(extract(epoch FROM next_delayed - read_at) AS float) AS delayed_seconds,
            read_at
        FROM terms, (
            SELECT min(scheduled_at) AS next_delayed, {_NOW} AS read_at FROM trax.work_queue WHERE {DELAYED}
        ) AS delayed
    ),
    given AS (
        SELECT id, read_at, starts_at,
               nextval((SELECT pg_get_serial_sequence('trax.metadata', 'id'))) AS metadata_id
        FROM (
            SELECT id, read_at, CASE WHEN place <= :slots THEN read_at END AS starts_at FROM listed, visit
            WHERE is_plain AND place <= :places
              AND (CAST(:max_active AS bigint) IS NULL OR place <= :max_active - active_runs)
              AND place < coalesce(
                  (SELECT min(place) FROM listed WHERE place > :slots AND NOT may_wait), place + 1)
            ORDER BY place
        ) AS in_order
    ),
    marked AS (
        UPDATE trax.work_queue AS entry
        SET status = 'dispatched', metadata_id = given.metadata_id, dispatched_at = read_at
        FROM given WHERE entry.id = given.id AND status = 'queued'
        RETURNING entry.*, starts_at
    ),
    inserted AS (
        INSERT INTO trax.metadata
            (id, entry_id, state, created_at, started_at, submitter, exempt, worker_id, host, {_COPIED})
        SELECT metadata_id, id, 'in_progress', dispatched_at, starts_at, 'local', false, :worker_id,
               :host, {_COPIED}
        FROM marked ORDER BY metadata_id
    )
    SELECT metadata_id, external_id, train, CAST(input AS text), manifest_id, attempt, priority,
           scheduled_for, timeout_seconds,
           (SELECT named.external_id FROM trax.manifest AS named WHERE named.id = marked.manifest_id),
           CAST(0 AS float), group_priority, id, {_LAST_COLUMNS}
    FROM visit LEFT JOIN marked ON true
    ORDER BY metadata_id
    """
    )
)
