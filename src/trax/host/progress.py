"""Progress of one run: its junctions and reports, kept in memory until they are written."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Final

from trax.errors import StoreError
from trax.records.junction_timing import timings_to_json
from trax.records.metadata import ProgressUpdate
from trax.records.states import CancelReason
from trax.store import progress

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import datetime

    from trax.store import Store
    from trax.train import Cancellation

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 0.5
"""How old the last check for a stop request may be when a junction begins."""

STOP_REASONS: Final = {
    CancelReason.REQUESTED: "cancelled by request",
    CancelReason.TIMEOUT: "timed out",
}
"""The reason that a stopped run gets."""

MAX_TIMINGS: Final = 100
MESSAGE_CHARACTERS: Final = 500


class RunProgress:
    """The current junction and last report of a run. Any thread may read; only the run itself writes.

    A junction costs two clock reads. The database is checked for a stop request between two junctions, if the
    last check is older than `CHECK_SECONDS` or this process has just requested a stop.
    """

    __slots__ = (
        "_began",
        "_steps",
        "_store",
        "current",
        "external_id",
        "is_held",
        "last_report",
        "metadata_id",
        "next_check_at",
        "replaced_input",
        "saved_state",
        "token",
    )

    def __init__(
        self, store: Store, metadata_id: int, external_id: str, token: Cancellation, *, is_held: bool
    ) -> None:
        self._store = store
        self.metadata_id = metadata_id
        self.external_id = external_id
        self.token = token
        self.is_held = is_held
        """Whether a worker holds the run, and checks for stop requests."""
        self._began = perf_counter()
        self._steps: list[tuple[str, float]] = []
        self.current: tuple[str, float] | None = None
        self.last_report: tuple[float, str | None] | None = None
        self.saved_state: tuple[object, object] = (None, None)
        self.replaced_input: tuple[str | None] | None = None
        """What the record stores instead of the input, after the run has read it."""
        self.next_check_at = self._began + CHECK_SECONDS

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return perf_counter() - self._began

    @property
    def state(self) -> tuple[object, object]:
        """What to write; compared with `saved_state`."""
        return self.current, self.last_report

    def enter(self, junction: str) -> Awaitable[None] | None:
        """Note that a junction begins; await the result first, if there is one."""
        now = perf_counter()
        if now >= self.next_check_at and not self.token.requested:
            return self._check_first(junction, now)
        self._begin(junction, now)
        return None

    def report(self, fraction: float, message: str | None) -> None:
        """Store a progress report of the run; only the last one is written."""
        self.last_report = fraction, message and message[:MESSAGE_CHARACTERS]

    def timings(self) -> str | None:
        """Junction timings of a run that ends now, as JSON; None for a single junction."""
        if len(self._steps) < 2:  # noqa: PLR2004
            return None
        ends = [*(began for _, began in self._steps[1:]), perf_counter()]
        steps = zip(self._steps, ends, strict=True)
        return timings_to_json(
            (name, began - self._began, end - began) for (name, began), end in list(steps)[:MAX_TIMINGS]
        )

    def build_note(self, now: datetime) -> ProgressUpdate:
        """The progress to write; the junction's start is computed from the database's `now`."""
        name, began = self.current or (None, None)
        fraction, message = self.last_report or (None, None)
        return ProgressUpdate(
            metadata_id=self.metadata_id,
            current_junction=name,
            junction_started_at=None if began is None else now - timedelta(seconds=perf_counter() - began),
            progress=fraction,
            progress_message=message,
        )

    def stop(self, reason: CancelReason) -> None:
        self.token.cancel(STOP_REASONS[reason], timed_out=reason is CancelReason.TIMEOUT)

    def _begin(self, junction: str, now: float) -> None:
        if self.token.requested:
            return  # the junction will not begin
        self.current = junction, now
        if len(self._steps) <= MAX_TIMINGS:
            self._steps.append(self.current)

    def _check_first(self, junction: str, now: float) -> Awaitable[None] | None:
        self.next_check_at = (
            now + CHECK_SECONDS
        )  # before the check: a stop request made during it resets this
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a synchronous train, in a thread of its own
            self._check_blocking()
            self._begin(junction, perf_counter())
            return None
        return self._check_async(junction)

    async def _check_async(self, junction: str) -> None:
        try:
            self._apply_stop_requests(
                await self._store.ask(progress.find_cancel_requests, [self.metadata_id])
            )
        except StoreError as error:
            logger.debug("run %s could not check for a stop request: %s", self.metadata_id, error)
        self._begin(junction, perf_counter())

    def _check_blocking(self) -> None:
        try:
            self._apply_stop_requests(self._store.read(progress.find_cancel_requests, [self.metadata_id]))
        except StoreError as error:
            logger.debug("run %s could not check for a stop request: %s", self.metadata_id, error)

    def _apply_stop_requests(self, reasons: dict[int, CancelReason]) -> None:
        for why in reasons.values():
            self.stop(why)
