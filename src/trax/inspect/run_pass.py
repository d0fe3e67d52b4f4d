"""One pass of `trax verify` over the runs, in the order of their admission: each run feeds every check."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trax.inspect import record_checks
from trax.inspect.job_sweep import InstanceSweep, JobSweep, OrderSweep
from trax.inspect.limits_in_force import limit_text
from trax.inspect.record_checks import ACTIVE_STATES, KnownWorkers
from trax.inspect.sweep import AdmittedRun, AttemptSweep, LimitSweep
from trax.records.verification import FindingKind, HistoryFinding
from trax.store import history, present
from trax.store.history import SEALED_INPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from trax.inspect.history_reader import Findings, HistoryReader
    from trax.inspect.job_sweep import ActiveInstance
    from trax.inspect.limits_in_force import ExemptTrains, LimitTimeline
    from trax.inspect.sweep import LimitViolation
    from trax.inspect.waiting_jobs import WaitingWatch
    from trax.store.history import RunRow


class KnownLimits(NamedTuple):
    """The limits over time, globally and by group id; since when each group is enabled or not; and more."""

    total: LimitTimeline
    groups: dict[int, LimitTimeline]
    enabled_since: dict[int, datetime]
    exempt: ExemptTrains
    retention: timedelta | None
    """For how long resolved dead letters were kept at least, if it is known."""
    names: Mapping[int, str]
    """The names of the groups by id."""


class RunPass:
    """Reads the runs once."""

    def __init__(
        self,
        reader: HistoryReader,
        found: Findings,
        limits: KnownLimits,
        watch: WaitingWatch,
        *,
        commits_in_order: bool,
    ) -> None:
        self._reader = reader
        self._found = found
        self._known = limits
        self._watch = watch
        self.limits = LimitSweep(limits.total, limits.groups)
        self._attempts = AttemptSweep()
        self._order = OrderSweep(commits_in_order=commits_in_order)
        self._instances = InstanceSweep()
        self._workers = KnownWorkers(*reader.read(present.load_workers))
        self.runs = 0
        self.missing_ids = 0
        """How many ids in the period have no run."""
        self.removed_groups: set[int] = set()

    def read(self) -> None:
        reader, last = self._reader, self._reader.end.run_id
        first, stop = reader.bounds("metadata", last)
        if reader.since is not None:
            for start, end in reader.spans(0, first):
                self._count_before(reader.since, start, end)
        jobs = JobSweep(first, reader.since)
        for rows in reader.rows(history.load_runs, first, stop):
            self.runs += len(rows)
            self._refresh_workers(rows)
            instances: list[ActiveInstance] = []
            for run in rows:
                self._found.add(self._check(run, jobs, instances))
                self._watch.add(run)
            if instances:
                self._check_instances(instances)
        self.missing_ids = stop - first - self.runs
        self._found.leave_undecided(FindingKind.ATTEMPT_MISSING, jobs.forgotten)
        self._found.leave_undecided(
            FindingKind.LIMIT_EXCEEDED, self.limits.total.uncertain_admissions + self.limits.unknown
        )

    def name(self, group_id: int) -> str:
        return self._known.names.get(group_id, f"(deleted group {group_id})")

    def _check(
        self, run: RunRow, jobs: JobSweep, instances: list[ActiveInstance]
    ) -> Iterator[HistoryFinding]:
        """The findings of a run; two attempts at once, unless one of them is a finding for that already."""
        findings = list(record_checks.check_run(run))
        yield from findings
        yield from record_checks.check_worker(run, self._workers)
        yield from self._check_group(run)
        is_first, attempt = jobs.add(run)
        overlapping = self._attempts.add(
            run.id, run.external_id, admitted_at=run.created_at, ended_at=run.ended_at
        )
        if not any(each.kind is FindingKind.EXECUTED_TWICE for each in findings):
            if overlapping is not None:
                yield record_checks.attempts_overlap(run, overlapping)
            elif attempt is not None:
                yield attempt
        if (inverted := self._order.add(run, is_first=is_first)) is not None:
            yield inverted
        if (instance := self._instances.add(run)) is not None:
            instances.append(instance)
        yield from self._check_limits(run)

    def _check_limits(self, run: RunRow) -> Iterator[HistoryFinding]:
        if run.difference == SEALED_INPUT:
            self._found.leave_undecided(FindingKind.RECORD_MISMATCH)
        if run.submitter is not None:
            is_wrong = self._known.exempt.contradicts(run.train, run.created_at, exempt=run.exempt)
            if is_wrong:
                yield record_checks.wrongly_exempt(run)
            elif is_wrong is None:
                self._found.leave_undecided(FindingKind.OUTSIDE_LIMITS)
        if not run.exempt:
            is_direct = run.submitter is None
            admitted = AdmittedRun(run.id, run.group_id, run.created_at, run.ended_at, is_direct)
            yield from map(self._limit_finding, self.limits.add(admitted))

    def _check_group(self, run: RunRow) -> Iterator[HistoryFinding]:
        if run.group_id is None or run.group_id in self._known.names:
            return
        self.removed_groups.add(run.group_id)
        if run.state in ACTIVE_STATES:
            text = f"run {run.id} is active in group {run.group_id}, which does not exist"
            yield HistoryFinding(FindingKind.ORPHAN, "run", (run.id,), text)

    def _refresh_workers(self, rows: Sequence[RunRow]) -> None:
        """Read the workers again if one has registered since."""
        if any((run.worker_id or 0) > self._workers.last_id for run in rows):
            self._workers = KnownWorkers(*self._reader.read(present.load_workers))

    def _count_before(self, since: datetime, start: int, end: int) -> None:
        for run in self._reader.read(history.load_active_at, since, after=start, up_to=end):
            is_direct = run.submitter is None
            if not run.exempt:
                admitted = AdmittedRun(run.id, run.group_id, run.created_at, run.ended_at, is_direct)
                self.limits.count_before(admitted)
            self._instances.count_before(run.id, run.manifest_id, run.origin, run.ended_at)

    def _check_instances(self, instances: Sequence[ActiveInstance]) -> None:
        """Judge runs of a schedule that overlap, by `max_instances` since the last change of the manifest."""
        ids = {each.manifest_id for each in instances}
        limits = self._reader.read(history.load_instance_limits, ids)
        for each in instances:
            limit = limits.get(each.manifest_id)
            if limit is None or len(each.others) < limit.max_instances:
                continue
            if each.queued_at <= limit.changed_at:
                self._found.leave_undecided(FindingKind.TOO_MANY_INSTANCES)
                continue
            others = ", ".join(map(str, each.others))
            text = (
                f"run {each.run_id} of manifest {limit.external_id!r} was admitted while {len(each.others)} "
                f"scheduled runs of it were active ({others}); max_instances is {limit.max_instances}"
            )
            ids_of_runs = (each.run_id, *each.others)
            self._found.add([HistoryFinding(FindingKind.TOO_MANY_INSTANCES, "run", ids_of_runs, text)])

    def _limit_finding(self, violation: LimitViolation) -> HistoryFinding:
        run, group_id = violation.run, violation.group_id
        where = "" if group_id is None else f" to group {self.name(group_id)!r}"
        which = "global limit" if group_id is None else "limit of the group"
        text = (
            f"run {run.id} was admitted{where} at {run.admitted_at:%Y-%m-%d %H:%M:%S.%f}Z while "
            f"{violation.active} runs were active; the {which} was {limit_text(violation.limit)}"
        )
        return HistoryFinding(FindingKind.LIMIT_EXCEEDED, "run", (run.id,), text)
