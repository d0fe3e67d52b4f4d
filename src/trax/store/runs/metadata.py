"""Insert, finish, cancel and read runs (table `metadata`)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    Text,
    bindparam,
    case,
    cast,
    column,
    func,
    insert,
    literal_column,
    null,
    select,
    text,
    update,
)

from trax.records.metadata import Metadata, timings_from_json
from trax.records.states import CancelReason, State
from trax.store.announce import notifications, send_with_commit
from trax.store.dialect import (
    among,
    id_array,
    id_document,
    json_array,
    later_of,
    now_parameter,
    quick_document,
    rows_of,
)
from trax.store.pipeline import commit_together, run_together
from trax.store.schema import tables, tables_for
from trax.store.types import (
    POSTGRESQL,
    SQLITE,
    BigId,
    Json,
    Utc,
    parse_json,
    parse_mapping,
    sql_literal,
    storable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Insert, Row, Select, Update

    from trax.records.metadata import NewRun
    from trax.records.result import RunResult
    from trax.store.pipeline import BoundStatement, Rows


SUCCESS_COLUMNS: Final = ("output", "junctions")
FAILURE_COLUMNS: Final = ("failure_junction", "failure_exception", "failure_reason", "stack_trace")
RESULT_COLUMNS: Final = (*SUCCESS_COLUMNS, *FAILURE_COLUMNS)


def begin(connection: Connection, run: NewRun, *, now: datetime) -> int:
    """Insert a run that starts in this process. Returns its id."""
    metadata = tables(connection).metadata
    values = asdict(run) | {"state": State.IN_PROGRESS.value, "created_at": now, "started_at": now}
    return connection.execute(insert(metadata).values(values).returning(metadata.c.id)).scalar_one()


def add_completed(connection: Connection, *, external_id: str, train: str, now: datetime) -> None:
    """Insert the run of an administrative cycle that has already completed."""
    parameters = {"external_id": external_id, "train": train, "now": now}
    statement: BoundStatement = (_add_completed(connection.dialect.name), parameters)
    if not send_with_commit(connection, statement):
        run_together(connection, statement)


def finish(connection: Connection, results: Sequence[RunResult], *, now: datetime) -> set[int]:
    """Write the results of many runs. Returns the ids that were written.

    A run that was reaped in the meantime (its worker was considered lost) is not changed.
    """
    step = finish_statement(connection.dialect.name, results, now=now)
    return parse_finished_ids(run_together(connection, step)[0])


def finish_and_commit(
    connection: Connection, results: Sequence[RunResult], *, now: datetime | None
) -> set[int]:
    """Like `finish`, with the commit in the same round trip. For runs that need no further writes."""
    step = finish_statement(connection.dialect.name, results, now=now)
    return parse_finished_ids(commit_together(connection, step, *notifications(connection))[0])


def find_already_finished(connection: Connection, results: Sequence[RunResult]) -> set[int]:
    """Return the runs that already have this result: it was written, but the response was lost.

    A reaped run has a different exception name, so it never matches.
    """
    metadata = tables(connection).metadata
    query = select(metadata.c.id, metadata.c.worker_id, metadata.c.state, metadata.c.failure_exception)
    ids = id_document(result.metadata_id for result in results)
    rows = connection.execute(query.where(among(connection, metadata.c.id)), {"ids": ids})
    stored = {row.id: tuple(row)[1:] for row in rows}
    return {
        result.metadata_id
        for result in results
        if stored.get(result.metadata_id)
        == (result.worker_id, result.state, storable(result.failure_exception))
    }


def finish_statement(dialect: str, results: Sequence[RunResult], *, now: datetime | None) -> BoundStatement:
    """The statement that ends these runs, as far as their worker holds them; it returns their ids."""
    if dialect != SQLITE and all(map(_is_plain_success, results)):
        workers = {result.worker_id for result in results}
        if len(workers) == 1:
            return _finish_completed_statement(results, workers.pop(), now)
    rows = map(partial(_row, now if dialect == SQLITE else None, perf_counter()), results)
    return _finish(dialect), {"results": quick_document(dialect, rows), "now": now}


def _is_plain_success(result: RunResult) -> bool:
    return result.state is State.COMPLETED and result.junctions is None


def _finish_completed_statement(
    results: Sequence[RunResult], worker_id: int | None, now: datetime | None
) -> BoundStatement:
    """For completed runs of one worker on PostgreSQL: arrays cost the server half as much as a document."""
    sent_at = perf_counter()
    parameters: dict[str, Any] = {
        "ids": id_document(result.metadata_id for result in results),
        "ran": id_document(_microseconds(result.began, sent_at) for result in results),
        "worker_id": worker_id,
        "now": now,
    }
    outputs = [storable(result.output) for result in results]
    if len(set(outputs)) == 1:
        return _finish_alike(POSTGRESQL), {**parameters, "output": outputs[0]}
    return _finish_completed(POSTGRESQL), {**parameters, "outputs": json_array(outputs)}


def _microseconds(began: float | None, sent_at: float) -> int:
    """The time since a run began, for its start on the clock of the database."""
    return 0 if began is None else int((sent_at - began) * 1_000_000)


def parse_finished_ids(rows: Rows) -> set[int]:
    return {row[0] for row in rows}


def get(connection: Connection, metadata_id: int) -> Metadata | None:
    metadata = tables(connection).metadata
    row = connection.execute(select_records(connection).where(metadata.c.id == metadata_id)).one_or_none()
    return build_record(row) if row else None


def load_by_ids(connection: Connection, ids: Sequence[int]) -> dict[int, Metadata]:
    """Load runs, keyed by id."""
    if not ids:
        return {}
    query = select_records(connection).where(among(connection, tables(connection).metadata.c.id))
    return {row.id: build_record(row) for row in connection.execute(query, {"ids": id_document(ids)})}


def _row(now: datetime | None, sent_at: float, result: RunResult) -> dict[str, Any]:
    """Build one row of the result document. A missing key becomes NULL.

    SQLite gets the start as a time, by its `now`; PostgreSQL gets how long ago that was.
    """
    row: dict[str, Any] = {
        "metadata_id": result.metadata_id,
        "worker_id": result.worker_id,
        "state": result.state,
    }
    if result.began is not None or result.state is State.COMPLETED:
        ran = _microseconds(result.began, sent_at)
        row["began"] = ran if now is None else now - timedelta(microseconds=ran)
    for name in SUCCESS_COLUMNS if result.state is State.COMPLETED else RESULT_COLUMNS:
        value = getattr(result, name)
        if value is not None:
            row[name] = storable(value)
    return row


@cache
def _add_completed(dialect: str) -> Insert:
    now = bindparam("now", type_=Utc)
    return insert(tables_for(dialect).metadata).values(
        external_id=bindparam("external_id"),
        train=bindparam("train"),
        state=sql_literal(State.COMPLETED),
        exempt=True,
        created_at=now,
        started_at=now,
        ended_at=now,
    )


@cache
def _finish(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    began = Utc() if dialect == SQLITE else BigId
    types = {"metadata_id": BigId, "worker_id": BigId, "began": began, "state": metadata.c.state.type}
    results = rows_of(dialect, "results", types | {name: metadata.c[name].type for name in RESULT_COLUMNS})
    values = {name: results.c[name] for name in ("state", *RESULT_COLUMNS)}
    return _finish_each(dialect, results.c.metadata_id, results.c.worker_id, results.c.began, values)


@cache
def _finish_completed(dialect: str) -> Update:
    """End completed runs of one worker, each with its output."""
    texts = select(func.json_array_elements_text(cast(bindparam("outputs", type_=Text), Json)))
    listed = func.unnest(id_array("ids"), id_array("ran"), func.array(texts.scalar_subquery())).table_valued(
        column("id", BigId), column("ran", BigId), column("output", Text), name="given"
    )
    given = listed.render_derived()
    values = _success(cast(given.c.output, Json))
    return _finish_each(dialect, given.c.id, _worker_parameter(), given.c.ran, values)


@cache
def _finish_alike(dialect: str) -> Update:
    """End completed runs of one worker that have the same output, usually none."""
    output = cast(bindparam("output", type_=Text), Json)
    listed = func.unnest(id_array("ids"), id_array("ran")).table_valued(
        column("id", BigId), column("ran", BigId), name="given"
    )
    given = listed.render_derived()
    return _finish_each(dialect, given.c.id, _worker_parameter(), given.c.ran, _success(output))


def _worker_parameter() -> ColumnElement[Any]:
    return bindparam("worker_id", type_=BigId)


def _success(output: ColumnElement[Any]) -> dict[str, Any]:
    nothing = dict.fromkeys(RESULT_COLUMNS, null())
    return {**nothing, "state": sql_literal(State.COMPLETED), "output": output}


def _finish_each(
    dialect: str,
    run_id: ColumnElement[Any],
    worker_id: ColumnElement[Any],
    began: ColumnElement[Any],
    values: dict[str, Any],
) -> Update:
    """End runs; one that was claimed ahead also gets its start, if it has begun."""
    metadata = tables_for(dialect).metadata
    # COALESCE hides the condition: the planner would expect one running row, and scan the document per row.
    still_ours = func.coalesce(
        (metadata.c.state == sql_literal(State.IN_PROGRESS))
        & metadata.c.worker_id.is_not_distinct_from(worker_id),
        False,
    )
    return (
        update(metadata)
        .where(metadata.c.id == run_id, still_ours)
        .values(
            started_at=func.coalesce(metadata.c.started_at, start_of_run(dialect, began)),
            ended_at=now_parameter(dialect),
            current_junction=null(),
            junction_started_at=null(),
            **values,
        )
        .returning(metadata.c.id)
    )


def start_of_run(dialect: str, began: ColumnElement[Any]) -> ColumnElement[Any]:
    """When a run began: not before its admission, since two clocks may differ. NULL if it did not begin.

    On PostgreSQL `began` is the time since then in microseconds, on SQLite the time itself.
    """
    created_at = tables_for(dialect).metadata.c.created_at
    start = began
    if dialect != SQLITE:
        start = now_parameter(dialect) - began * literal_column("interval '1 microsecond'")
    return case((began.is_not(None), later_of(dialect, created_at, start)))


def select_records(connection: Connection) -> Select[Any]:
    t = tables(connection)
    return (
        select(
            t.metadata,
            t.manifest.c.external_id.label("manifest"),
            t.manifest_group.c.name.label("group_name"),
            *(t.worker_identity.c[name] for name in ("host_environment", "host_instance_id", "host_labels")),
        )
        .select_from(t.metadata)
        .outerjoin(t.worker_identity, t.worker_identity.c.worker_id == t.metadata.c.worker_id)
        .outerjoin(t.manifest, t.manifest.c.id == t.metadata.c.manifest_id)
        .outerjoin(t.manifest_group, t.manifest_group.c.id == t.metadata.c.group_id)
    )


def build_record(row: Row[Any]) -> Metadata:
    return Metadata(
        id=row.id,
        external_id=row.external_id,
        train=row.train,
        state=State(row.state),
        manifest=row.manifest,
        group=row.group_name,
        priority=row.priority,
        attempt=row.attempt,
        input=parse_json(row.input),
        output=parse_json(row.output),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        failure_junction=row.failure_junction,
        failure_exception=row.failure_exception,
        failure_reason=row.failure_reason,
        stack_trace=row.stack_trace,
        parent_id=row.parent_id,
        submitter=row.submitter,
        worker=row.worker_id,
        host=row.host,
        host_environment=row.host_environment,
        host_instance_id=row.host_instance_id,
        host_labels=parse_mapping(row.host_labels),
        progress=row.progress,
        current_junction=row.current_junction,
        cancel_requested=row.cancel_requested,
        junction_started_at=row.junction_started_at,
        progress_message=row.progress_message,
        junctions=timings_from_json(row.junctions, row.started_at),
    )


class CancelledRun(NamedTuple):
    """A run that was cancelled before it started."""

    id: int
    external_id: str
    manifest_id: int | None
    attempt: int


class RerunRequest(NamedTuple):
    """The input and options of a run, to enqueue it again. `input` and `retry` are JSON text.

    `max_retries` is that of the manifest, which overrides the retry policy; None for a job without a
    manifest.
    """

    train: str
    input: str | None
    priority: int
    group: str | None
    timeout_seconds: float | None
    retry: str | None
    max_retries: int | None
    unique: str | None


def cancel_pending(
    connection: Connection, ids: Sequence[int], *, reason: str, now: datetime
) -> list[CancelledRun]:
    """Cancel the runs among `ids` that are still pending; returns them.

    A worker may claim one at the same time. The second of the two finds that it is no longer pending.
    """
    metadata = tables(connection).metadata
    statement = (
        update(metadata)
        .where(among(connection, metadata.c.id), text("state = 'pending'"))
        .values(
            state=sql_literal(State.CANCELLED),
            ended_at=now,
            cancel_requested=True,
            cancel_reason=CancelReason.REQUESTED,
            failure_exception="Cancelled",
            failure_reason=reason,
        )
        .returning(*(metadata.c[name] for name in CancelledRun._fields))
    )
    return [CancelledRun(*row) for row in connection.execute(statement, {"ids": id_document(ids)})]


def is_in_progress(connection: Connection, metadata_id: int) -> bool:
    """Whether a run is in progress; its row is locked until this transaction ends."""
    run = tables(connection).metadata
    query = select(run.c.id).where(run.c.id == metadata_id, text("state = 'in_progress'"))
    return connection.execute(query.with_for_update(key_share=True)).first() is not None


def load_rerun_request(connection: Connection, metadata_id: int) -> RerunRequest | None:
    t = tables(connection)
    query = (
        select(
            t.metadata.c.train,
            t.metadata.c.input,
            t.metadata.c.priority,
            t.manifest_group.c.name,
            t.metadata.c.timeout_seconds,
            func.coalesce(t.work_queue.c.retry, t.manifest.c.retry),
            t.manifest.c.max_retries,
            func.coalesce(t.work_queue.c.unique_key, t.work_queue.c.former_key),
        )
        .outerjoin(t.manifest_group, t.manifest_group.c.id == t.metadata.c.group_id)
        .outerjoin(t.work_queue, t.work_queue.c.id == t.metadata.c.entry_id)
        .outerjoin(t.manifest, t.manifest.c.id == t.metadata.c.manifest_id)
        .where(t.metadata.c.id == metadata_id)
    )
    row = connection.execute(query).one_or_none()
    return RerunRequest(*row) if row else None
