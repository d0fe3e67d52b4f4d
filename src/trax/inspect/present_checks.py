"""What is wrong now: lost runs, silent manifests, jobs that wait too long, and rows that exist twice."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trax.engine.live_settings import LiveSettings
from trax.engine.retry import rules_of
from trax.inspect.history_reader import CHUNK
from trax.inspect.missed_occurrences import OVERDUE, check_state
from trax.inspect.waiting_jobs import WAITED_FOR, Servers, WaitingJobs, WaitingVerdict
from trax.records.manifest import ToRest
from trax.records.verification import FindingKind, HistoryFinding
from trax.schedule.decide import decide
from trax.settings import Settings
from trax.store import present, settings, workers
from trax.store.manifests import manifest_due

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from trax.inspect.history_reader import Findings, HistoryReader
    from trax.inspect.limits_in_force import LimitTimeline
    from trax.inspect.missed_occurrences import MinuteSet
    from trax.inspect.waiting_jobs import WaitingWatch
    from trax.store import Connection
    from trax.store.present import DuplicateEntry, DuplicateLetter

LOST_FOR: Final = timedelta(minutes=10)
"""A run without a live worker for this long is lost, if a server was running: it detects that after 20 s."""
ALIVE_FOR: Final = timedelta(minutes=1)
RECENT: Final = timedelta(hours=1)
"""If others were queued in this time, a manager works."""


def load_waiting(connection: Connection, now: datetime) -> WaitingJobs:
    """What has waited for long."""
    before = now - WAITED_FOR
    return WaitingJobs(
        ready=present.load_ready(connection, since_before=before),
        delayed=present.load_delayed(connection, since_before=before),
        parked=present.load_parked(connection, since_before=before),
        pending=present.load_pending(connection, since_before=before),
        handed_over=present.load_handed_over(connection, since_before=before),
    )


class PresentChecks:
    """The checks of what is active, queued or due now."""

    def __init__(self, reader: HistoryReader, found: Findings, on_time: MinuteSet) -> None:
        self._read = reader.read
        self._found = found
        self._on_time = on_time
        self._now = reader.end.now

    def check_unattended(self) -> None:
        """Check manifests that have no next due time, or an old one, if others were queued since."""
        now = self._now
        rules, threshold = rules_of(Settings()), Settings().default_misfire_threshold
        due = self._read(present.load_unattended, due_before=now - OVERDUE)
        silent: dict[int, str] = {}
        for start in range(0, len(due), CHUNK):
            since = dict(due[start : start + CHUNK])
            states = self._read(manifest_due.load_states_unlocked, [*since], default_threshold=threshold)
            for state in states:
                finding = check_state(state, rules, now)
                if finding is None:
                    is_silent = since[state.id] is None
                    if is_silent and not isinstance(decide(state, rules, now), ToRest):
                        silent[state.id] = state.external_id
                elif self._on_time.first_between(since[state.id] or now - RECENT, now) is None:
                    self._found.leave_undecided(finding.kind)
                else:
                    self._found.add([finding])
        if silent:
            self._check_silent(silent)

    def _check_silent(self, silent: Mapping[int, str]) -> None:
        """Those that still have no next due time: between two reads, an event may have set one."""
        still = set(self._read(manifest_due.find_without_next_due))
        for manifest_id in silent.keys() & still:
            text = (
                f"manifest {silent[manifest_id]!r} ({manifest_id}) has no next due time, entry or run: "
                "it would never run again"
            )
            finding = HistoryFinding(FindingKind.MANIFEST_SILENT, "manifest", (manifest_id,), text)
            self._found.add([finding])

    def check_lost_runs(self) -> None:
        now = self._now
        before = {"started_before": now - LOST_FOR}
        lost = self._read(present.load_lost_runs, **before, admitted_before=now - RECENT)
        if lost and not self._read(present.has_server_since, **before, alive_since=now - ALIVE_FOR):
            self._found.leave_undecided(FindingKind.RUN_LOST, len(lost))
            return
        for run in lost:
            text = (
                f"run {run.id} is in progress, but its worker {run.worker_id} is gone and no server ended it"
            )
            self._found.add([HistoryFinding(FindingKind.RUN_LOST, "run", (run.id,), text)])

    def check_double_schedules(self) -> None:
        for each in self._read(present.load_double_schedules):
            text = (
                f"manifest {each.external_id!r} ({each.id}) has {each.entries} scheduled entries in the "
                f"queue; the first is {each.first}, the last {each.last}"
            )
            ids = (each.first, each.last)
            self._found.add([HistoryFinding(FindingKind.SCHEDULED_TWICE, "entry", ids, text)])

    def check_waiting(
        self,
        waiting: WaitingJobs,
        watch: WaitingWatch,
        total: LimitTimeline,
        groups: Mapping[int, LimitTimeline],
    ) -> None:
        if not any(waiting):
            return
        servers = self._read(present.load_servers, alive_since=self._now - ALIVE_FOR)
        verdict = WaitingVerdict(
            watch,
            Servers.of(servers, self._now),
            self._read(_load_settings, self._now - ALIVE_FOR),
            total=total,
            groups=groups,
            now=self._now,
        )
        self._found.add(verdict.findings(waiting))
        self._found.leave_undecided(FindingKind.WAITS_TOO_LONG, verdict.undecided)


def _load_settings(connection: Connection, alive_since: datetime) -> Settings:
    """The settings of the newest live server; without one, the defaults with what operators stored."""
    live = LiveSettings(Settings(), {})
    own = live.accept(settings.load_edited(connection))
    published = workers.load_published_settings(connection, alive_since=alive_since)
    return own if published is None else live.load_published(published)


def duplicate_entries(found: Sequence[DuplicateEntry]) -> list[HistoryFinding]:
    return [
        HistoryFinding(
            FindingKind.DUPLICATE,
            "entry",
            (each.first, each.last),
            f"{each.entries} entries have the external id {each.external_id!r}: the first is {each.first}, "
            f"the last {each.last}",
        )
        for each in found
    ]


def duplicate_letters(found: Sequence[DuplicateLetter]) -> list[HistoryFinding]:
    return [
        HistoryFinding(
            FindingKind.DUPLICATE,
            "dead letter",
            (each.first, each.last),
            f"{each.letters} {_of_what(each)}: the first is {each.first}, the last {each.last}",
        )
        for each in found
    ]


def _of_what(letters: DuplicateLetter) -> str:
    if letters.run_id is not None:
        return f"dead letters are about run {letters.run_id}"
    return f"open dead letters belong to manifest {letters.manifest_id}"
