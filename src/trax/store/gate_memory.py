"""What a dispatcher remembers of its last visit to the gate, so that the next one reads only what is new.

PostgreSQL keeps every version of a row, and its index entries, until no open transaction can see them. While
one session stays in a transaction, all entries that were dispatched since remain at the head of the index of
ready ones, and all runs that ended since in the index of running ones. A visit that reads from the start
reads past all of them, and each visit has more to skip.

A bound may only skip rows that cannot be ready or active. Two bounds stay valid regardless of what other
servers do:

The queue. S is a snapshot, taken under the gate lock before the queue was read; P is a position in its order;
`kept` are the entries up to P that the visit has read and not dispatched. Then a ready entry up to P is in
`kept`, or was written by a transaction that S does not see: the others were dispatched by the visit, which is
committed. Every INSERT and UPDATE stores its transaction in the row (`written_in`), also one by hand: the
column has a default, and a trigger. So it does not matter how an entry becomes ready or moves up (its delay
ends, its run puts it back, it is unparked, its group gets another priority), nor how long that transaction
took to commit. The transactions that S does not see are those from its xmax on, and those it lists as in
progress. A visit that makes entries ready after it has read the queue must forget the bound.

Active runs. Runs are admitted under the gate lock, with rising ids, and are committed when the lock is free.
A run that has ended never becomes active again. So if all active runs below an id are remembered, no other
one can appear below it. Runs of `app.run` begin without the lock; they have an index of their own, and are
always counted in full.

Ids and transaction ids may be given out again after a crash, or by a standby that takes over. No session
survives that. Each session gets a token, and a visit in a session whose token has not been seen at an earlier
visit reads from the start.

Rows can still be written with the transaction of another time: a dump restored beside running servers names
them, and replication runs no triggers. So a bound lives for a second, or ten times as long as the last visit
took that read from the start, if that is longer: many dead rows make it slow.
"""

# ruff: noqa: S608 - the parts of the statements are constants of the code

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Boolean, bindparam, func, literal_column, or_, select, text, union_all

from trax.store.schema import tables_for
from trax.store.schema.manifest import BOUND
from trax.store.schema.metadata import DIRECT, PENDING, RUNNING, UNDER_LIMITS
from trax.store.schema.work_queue import MAY_WAIT, READY
from trax.store.types import POSTGRESQL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from sqlalchemy import ColumnElement, Executable, FromClause, Select, Table

    from trax.store.pipeline import BoundStatement, Rows
    from trax.store.quick_gate import QuickTerms

MAX_SMALL: Final = 2**15 - 1
"""The largest priority that a column can store."""
MAX_NEW_ENTRIES: Final = 2_000
"""If more entries than this were written since the last visit, reading from the start is cheaper."""
SLOW_VISITS: Final = 16
"""The number of full visits after a quick visit that could not admit."""
MAX_OPENINGS: Final = 3
"""The number of openings in a row that no quick visit followed: behind some poolers every session is new."""
BOUND_SECONDS: Final = 1.0
"""How long a bound may be used before a visit reads from the start again."""
WHOLE_READ_SHARE: Final = 0.1
"""The largest share of the time that visits which read from the start may take: else a bound lives longer."""
MAX_SESSIONS: Final = 64
MAX_OLD_RUNS: Final = 100
"""How many of the oldest active runs are remembered by id."""
MAX_ENDED_RUNS: Final = 2_000
"""How many ended runs a bound may keep, plus two for each active run; with more, the next count reads all."""


class Candidate(NamedTuple):
    """A queued entry that may be admitted, and on PostgreSQL its position in the queue."""

    id: int
    train: str
    group_id: int | None
    dead_letter_id: int | None
    may_wait: bool = False
    """Whether a worker may claim it ahead of a free slot."""
    group_priority: int = 0
    priority: int = 0
    created_at: datetime | None = None

    @property
    def position(self) -> tuple[Any, ...]:
        """Rises in the order of the queue."""
        return -self.group_priority, -self.priority, self.created_at, self.id


class QueueBound(NamedTuple):
    """All ready entries up to `last` are `kept`, or written by transactions that `snapshot` does not see."""

    snapshot: str
    last: Candidate
    kept: tuple[int, ...] = ()


START_BOUND: Final = QueueBound(
    "",
    Candidate(0, "", None, None, False, MAX_SMALL, MAX_SMALL, datetime.min.replace(tzinfo=UTC)),  # noqa: FBT003
)
"""A bound before every entry, for a snapshot to be filled in."""


class RunBound(NamedTuple):
    """All active runs that were admitted have at least the id `first`, or are among `older`."""

    first: int
    older: tuple[int, ...] = ()


class GateBounds(NamedTuple):
    """Where a visit may begin to read; None: at the start."""

    queue: QueueBound | None = None
    runs: RunBound | None = None


class GateMarks(NamedTuple):
    """Read before all else in a visit: its snapshot, the token of its session, and the highest run id."""

    snapshot: str
    session: str
    max_run_id: int


class GateMemory:
    """What one dispatcher remembers of its last visit; empty if that visit failed.

    The clock must be monotonic; it is read to let bounds expire, and decides nothing else.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._bounds = GateBounds()
        self._whole_read_at: float | None = None
        """When a visit that reads from the start began; None after it has ended."""
        self._expires_at = 0.0
        self.sessions: deque[str] = deque(maxlen=MAX_SESSIONS)
        """The tokens of sessions that existed at earlier visits; one that is forgotten counts as new."""
        self._quick_terms: QuickTerms | None = None
        self._slow_visits_left = 0
        self._has_terms_to_find = True
        self._openings_left = MAX_OPENINGS

    @property
    def needs_opening(self) -> bool:
        """Whether an opening may allow a quick visit: before the first visit, and when terms have changed."""
        return self._has_terms_to_find and self._openings_left > 0

    def note_opening(self) -> None:
        """Call after the terms of quick visits were read."""
        self._has_terms_to_find = False
        self._openings_left -= 1

    def note_visit(self, *, has_same_terms: bool) -> None:
        """Call after a quick visit."""
        if has_same_terms:
            self._openings_left = MAX_OPENINGS
        else:
            self._quick_terms, self._has_terms_to_find = None, True

    @property
    def quick_terms(self) -> QuickTerms | None:
        """The terms for a quick visit; None without bounds, or if the last visits needed decisions.

        Without a limit active runs are not counted, and there is no bound for them.
        """
        terms, bounds = self._quick_terms, self._bounds
        if terms is None or bounds.queue is None:
            return None
        return terms if bounds.runs is not None or terms.max_active_jobs is None else None

    def allow_quick(self, terms: QuickTerms | None) -> None:
        """Allow quick visits under these terms, after a visit that would have needed no decision."""
        self._has_terms_to_find = False
        self._slow_visits_left = max(0, self._slow_visits_left - 1)
        self._quick_terms = None if self._slow_visits_left else terms

    def forbid_quick(self) -> None:
        """A quick visit admitted nothing: the next ones would probably fail too."""
        self._quick_terms, self._slow_visits_left = None, SLOW_VISITS

    def take(self, *, is_quick: bool = False) -> GateBounds:
        """Return the bounds and forget them: a visit sets them again when it has been committed.

        Expired ones are left out. A quick visit cannot do without: it gets a bound before every entry, and
        keeps that of active runs.
        """
        bounds, self._bounds = self._bounds, GateBounds()
        now = self._clock()
        if bounds.queue is None or now >= self._expires_at:
            self._whole_read_at = now
            rewound = bounds.queue and START_BOUND._replace(snapshot=bounds.queue.snapshot)
            bounds = GateBounds(rewound, bounds.runs) if is_quick else GateBounds()
        return bounds

    def has_seen(self, marks: GateMarks) -> bool:
        """Whether the session existed at an earlier visit; from now on it counts as seen."""
        is_known = marks.session in self.sessions
        if not is_known:
            self.sessions.append(marks.session)
        return is_known

    def remember(self, bounds: GateBounds) -> None:
        """Keep the bounds of a visit that was committed, as long as they live since the last whole read."""
        self._bounds = bounds
        began_at, self._whole_read_at = self._whole_read_at, None
        if began_at is not None:
            now = self._clock()
            self._expires_at = now + max(BOUND_SECONDS, (now - began_at) / WHOLE_READ_SHARE)


def next_queue_bound(
    marks: GateMarks,
    read: Sequence[Candidate],
    dispatched: Collection[int],
    previous: QueueBound | None,
    *,
    is_cut: bool,
) -> QueueBound | None:
    """The bound after a visit that has read these entries and committed the dispatch of some of them.

    It does not move back, so that one urgent entry does not undo it; unless the read was cut before it
    (`is_cut`), since the rest is then unknown.
    """
    if not read:
        return previous._replace(snapshot=marks.snapshot, kept=()) if previous else None
    last = None if previous is None else previous.last
    end = 0
    for place, entry in enumerate(read):
        if entry.id in dispatched or (last is not None and entry.position <= last.position):
            end = place
    kept = tuple(entry.id for entry in read[: end + 1] if entry.id not in dispatched)
    is_known_beyond = end < len(read) - 1 or not is_cut
    if last is None or not is_known_beyond or read[end].position > last.position:
        last = read[end]
    return QueueBound(marks.snapshot, last, kept)


def next_run_bound(
    marks: GateMarks, counts: Rows, oldest: Sequence[int] | None, previous: RunBound | None
) -> RunBound | None:
    """The bound after a count; None: the next count has no bound.

    `counts` of a count with a bound is empty only if nothing was counted; then the bound remains as it is.
    `oldest` are the oldest active runs in order, which only a count without a bound reads; None: not counted.
    """
    if previous is None:
        if oldest is None:
            return None
        first = oldest[MAX_OLD_RUNS] if len(oldest) > MAX_OLD_RUNS else marks.max_run_id + 1
        older = tuple(oldest[:MAX_OLD_RUNS])
    else:
        first, older = previous
        if counts:
            first = min((row[2] for row in counts if row[2] is not None), default=marks.max_run_id + 1)
    most = MAX_ENDED_RUNS + 2 * sum(row[1] for row in counts)
    return RunBound(first, older) if marks.max_run_id - first <= most else None


def select_marks() -> Executable:
    """Select the `GateMarks`, on PostgreSQL."""
    return _SELECT_MARKS


def in_order(source: Any) -> tuple[ColumnElement[Any], ...]:
    """The order of the queue: by the priority of the group, its own priority, and age."""
    return source.c.group_priority.desc(), source.c.priority.desc(), source.c.created_at, source.c.id


@cache
def select_first(dialect: str, names: tuple[str, ...] = ()) -> Select[Any]:
    """Select the first `most` ready entries in order: the columns of a `Candidate`, or those named."""
    queue = tables_for(dialect).work_queue
    columns = candidate_columns(dialect, queue, names or Candidate._fields)
    return select(*columns).where(text(READY)).order_by(*in_order(queue)).limit(bindparam("most"))


def candidate_columns(dialect: str, queue: Table, names: Iterable[str]) -> list[ColumnElement[Any]]:
    """The columns of the queue that are these fields of a candidate."""
    may_wait = literal_column(MAY_WAIT[dialect], Boolean).label("may_wait")
    return [may_wait if name == "may_wait" else queue.c[name] for name in names]


def select_candidates(dialect: str, bound: QueueBound | None, *, limit: int) -> BoundStatement:
    """Select the first ready entries in order, from the bound on."""
    if bound is None:
        return select_first(dialect), {"most": limit}
    return _SELECT_FROM_BOUND, {"most": limit, **queue_parameters(bound)}


def parse_candidates(rows: Rows, bound: QueueBound | None) -> list[Candidate] | None:
    """The entries of `select_candidates`; None if it stopped before it had read all new ones."""
    if bound is None:
        return [Candidate(*row) for row in rows]
    if rows[0][-1] > MAX_NEW_ENTRIES:
        return None
    return [Candidate._make(row[:-1]) for row in rows if row[0] is not None]


def count_statements(
    dialect: str, bound: RunBound | None, *, has_global_limit: bool, with_oldest: bool
) -> list[BoundStatement]:
    """Count the active runs under the limits by group, if there is a limit; the rows have the lowest id too.

    Without a bound they are counted only if there is a ready entry, and a second statement selects the oldest
    on request.
    """
    parameters: dict[str, Any] = {"is_bound": has_global_limit}
    if bound is not None:
        return [(_COUNT_FROM_BOUND, count_parameters(bound, has_global_limit=has_global_limit))]
    oldest: list[BoundStatement] = [(_SELECT_OLDEST, parameters)] if with_oldest else []
    return [(_count_active_runs(dialect), parameters), *oldest]


def active_runs(dialect: str) -> FromClause:
    """The active runs under the limits, from the indexes of the pending and of the running ones."""
    run = tables_for(dialect).metadata
    columns = (run.c.id, run.c.group_id, run.c.submitter)
    parts = (select(*columns).where(text(state), ~run.c.exempt) for state in (PENDING, RUNNING))
    return union_all(*parts).subquery("active")


@cache
def _count_active_runs(dialect: str) -> Select[Any, int, Any]:
    t, active = tables_for(dialect), active_runs(dialect)
    has_group_limit = select(t.manifest_group.c.id).where(text(BOUND)).exists()
    has_ready_entry = select(t.work_queue.c.id).where(text(READY)).exists()
    return (
        select(active.c.group_id, func.count(), func.min(active.c.id))
        .where(or_(bindparam("is_bound", type_=Boolean), has_group_limit), has_ready_entry)
        .group_by(active.c.group_id)
    )


def queue_parameters(bound: QueueBound) -> dict[str, Any]:
    last = bound.last
    return {
        "snapshot": bound.snapshot,
        "kept": _array(bound.kept),
        "last_group_priority": last.group_priority,
        "last_priority": last.priority,
        "last_created_at": last.created_at,
        "last_id": last.id,
    }


def count_parameters(bound: RunBound, *, has_global_limit: bool) -> dict[str, Any]:
    """The parameters of `COUNT_FROM_BOUND`."""
    return {"is_bound": has_global_limit, "first": bound.first, "older": _array(bound.older)}


def _array(ids: Iterable[int]) -> str:
    return f"{{{','.join(map(str, ids))}}}"


# The statements with a bound are plain SQL, for PostgreSQL alone. Their plans are kept while the tables grow,
# so no second index may look as cheap as the intended one, not even on empty tables: hence each ORDER BY, and
# the COALESCE, which hides the condition of the partial indexes.

SESSION_MARK: Final = """
    coalesce(nullif(current_setting('trax.session', true), ''),
             set_config('trax.session', CAST(gen_random_uuid() AS text), false))
"""
"""The token of the session, which gets one with its first visit."""

MARKS: Final = f"""
    CAST(pg_current_snapshot() AS text), {SESSION_MARK}, coalesce((SELECT max(id) FROM trax.metadata), 0)
"""
"""The columns of `GateMarks`."""

_SELECT_MARKS: Final = text(f"SELECT {MARKS}")

_COLUMNS: Final = ", ".join(Candidate._fields).replace(
    "may_wait", "manifest_id, dispatch_attempts, attempt, retry"
)
_FIELDS: Final = ", ".join(Candidate._fields).replace("may_wait", MAY_WAIT[POSTGRESQL])
IN_ORDER: Final = "group_priority DESC, priority DESC, created_at, id"
_SNAPSHOT: Final = "CAST(:snapshot AS pg_snapshot)"
_IS_KEPT: Final = "id = ANY (CAST(:kept AS bigint[]))"
_IS_UP_TO_LAST: Final = """
    (group_priority > :last_group_priority
     OR group_priority = :last_group_priority
        AND (priority > :last_priority
             OR priority = :last_priority AND (created_at, id) <= (:last_created_at, :last_id)))
"""
_RANGES_BEYOND: Final = (  # of the index, one after the other
    """group_priority = :last_group_priority AND priority = :last_priority
       AND (created_at, id) > (:last_created_at, :last_id)""",
    "group_priority = :last_group_priority AND priority < :last_priority",
    "group_priority < :last_group_priority",
)
_BEYOND: Final = " UNION ALL ".join(
    f"(SELECT {_COLUMNS} FROM trax.work_queue WHERE {READY} AND {part} ORDER BY {IN_ORDER} LIMIT :most)"
    for part in _RANGES_BEYOND
)


def _select_written(condition: str) -> str:
    return f"""
        SELECT {_COLUMNS} FROM trax.work_queue WHERE {READY} AND {condition}
        ORDER BY written_in LIMIT {MAX_NEW_ENTRIES + 1}
    """


READ_FROM_BOUND: Final = f"""
    new AS MATERIALIZED (
        ({_select_written(f"written_in >= pg_snapshot_xmax({_SNAPSHOT})")})
        UNION ALL
        SELECT {_COLUMNS} FROM pg_snapshot_xip({_SNAPSHOT}) AS late,
            LATERAL ({_select_written("written_in BETWEEN late AND late")}) AS written
    ),
    found AS (
        SELECT {_COLUMNS} FROM new WHERE {_IS_UP_TO_LAST} AND NOT {_IS_KEPT}
        UNION ALL
        SELECT {_COLUMNS} FROM trax.work_queue
        WHERE {_IS_KEPT} AND {_IS_UP_TO_LAST} AND coalesce({READY}, false)
        UNION ALL
        {_BEYOND}
    )
"""
"""The first entries from the bound on, in `found`, and all entries written since, in `new`."""

_SELECT_FROM_BOUND: Final = text(
    f"""
    WITH {READ_FROM_BOUND}
    SELECT {_FIELDS}, new_entries
    FROM (SELECT count(*) AS new_entries FROM new) AS total LEFT JOIN found ON true
    ORDER BY {IN_ORDER} LIMIT :most
    """
)

_IS_COUNTED: Final = f"(:is_bound OR EXISTS (SELECT FROM trax.manifest_group WHERE {BOUND}))"
_IS_ADMITTED: Final = f"submitter IS NOT NULL AND {UNDER_LIMITS}"

COUNT_FROM_BOUND: Final = f"""
    SELECT group_id, count(run) AS runs, min(id) AS first
    FROM (SELECT WHERE {_IS_COUNTED}) AS counted LEFT JOIN (
        SELECT id, group_id, 1 AS run FROM trax.metadata WHERE id >= :first AND {_IS_ADMITTED}
        UNION ALL
        SELECT NULL, group_id, 1 FROM trax.metadata
        WHERE id = ANY (CAST(:older AS bigint[])) AND {_IS_ADMITTED}
        UNION ALL
        (SELECT NULL, group_id, 1 FROM trax.metadata WHERE {DIRECT} AND NOT exempt ORDER BY id)
    ) AS active ON true
    GROUP BY group_id
"""
"""If nothing is found, the result is a row with 0; if nothing is counted, it is empty."""

_COUNT_FROM_BOUND: Final = text(COUNT_FROM_BOUND)

SELECT_OLDEST: Final = f"""
    SELECT CASE WHEN {_IS_COUNTED} AND EXISTS (SELECT FROM trax.work_queue WHERE {READY}) THEN ARRAY(
        SELECT id FROM (
            SELECT id, submitter FROM trax.metadata WHERE {PENDING} AND NOT exempt
            UNION ALL
            SELECT id, submitter FROM trax.metadata WHERE {RUNNING} AND NOT exempt
        ) AS active
        WHERE submitter IS NOT NULL ORDER BY id LIMIT {MAX_OLD_RUNS + 1}
    ) END
"""
"""The oldest active runs that were admitted; NULL if they are not counted."""

_SELECT_OLDEST: Final = text(SELECT_OLDEST)
