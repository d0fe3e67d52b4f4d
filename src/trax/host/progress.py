"""How far one run has come: its junctions and its own words, kept in memory until they are written."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Final

from trax.errors import StoreError
from trax.records.junction_timing import timings_to_json
from trax.records.metadata import ProgressNote
from trax.records.states import CancelReason
from trax.store import progress

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import datetime

    from trax.store import Store
    from trax.train import Cancellation

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How old the last look at the record may be when a junction begins."""

STOPPED: Final = {
    CancelReason.REQUESTED: "cancelled by request",
    CancelReason.TIMEOUT: "timed out: it took longer than it may",
}
"""What a run is told that somebody wants stopped."""

MOST_TIMINGS: Final = 100
MESSAGE_CHARACTERS: Final = 500


class RunProgress:
    """What a run does and says. Any thread may ask; only the run itself moves on.

    Each junction costs two readings of a clock. The database is asked between two junctions only when the
    last look was a while ago, or when somebody in this process has just asked a run to stop.
    """

    __slots__ = (
        "_began",
        "_steps",
        "_store",
        "current",
        "external_id",
        "is_held",
        "look_at",
        "metadata_id",
        "replaced_input",
        "token",
        "told",
        "written",
    )

    def __init__(
        self, store: Store, metadata_id: int, external_id: str, token: Cancellation, *, is_held: bool
    ) -> None:
        self._store = store
        self.metadata_id = metadata_id
        self.external_id = external_id
        self.token = token
        self.is_held = is_held
        """Whether a worker holds it, and watches for wishes to stop it."""
        self._began = perf_counter()
        self._steps: list[tuple[str, float]] = []
        self.current: tuple[str, float] | None = None
        self.told: tuple[float, str | None] | None = None
        self.written: tuple[object, object] = (None, None)
        self.replaced_input: tuple[str | None] | None = None
        """What the record keeps in the place of the input, once the run has had its use of it."""
        self.look_at = self._began + LOOK_SECONDS

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return perf_counter() - self._began

    @property
    def state(self) -> tuple[object, object]:
        """What there is to write down: it is compared with what was."""
        return self.current, self.told

    def enter(self, junction: str) -> Awaitable[None] | None:
        """A junction is about to begin; what comes back is to be awaited first."""
        now = perf_counter()
        if now >= self.look_at and not self.token.requested:
            return self._looked_first(junction, now)
        self._begin(junction, now)
        return None

    def tell(self, fraction: float, message: str | None) -> None:
        """Keep the run's own words; only the last ones are written."""
        self.told = fraction, message and message[:MESSAGE_CHARACTERS]

    def timings(self) -> str | None:
        """The junctions of a run that ends now, as JSON text; a single one took as long as its run."""
        if len(self._steps) < 2:  # noqa: PLR2004
            return None
        ends = [*(began for _, began in self._steps[1:]), perf_counter()]
        steps = zip(self._steps, ends, strict=True)
        return timings_to_json(
            (name, began - self._began, end - began) for (name, began), end in list(steps)[:MOST_TIMINGS]
        )

    def note(self, now: datetime) -> ProgressNote:
        """What the record is to show; a junction's age is counted back from the database's `now`."""
        name, began = self.current or (None, None)
        fraction, message = self.told or (None, None)
        return ProgressNote(
            metadata_id=self.metadata_id,
            current_junction=name,
            junction_started_at=None if began is None else now - timedelta(seconds=perf_counter() - began),
            progress=fraction,
            progress_message=message,
        )

    def stop(self, why: CancelReason) -> None:
        self.token.cancel(STOPPED[why], timed_out=why is CancelReason.TIMEOUT)

    def _begin(self, junction: str, now: float) -> None:
        if self.token.requested:
            return  # it will not begin
        self.current = junction, now
        if len(self._steps) <= MOST_TIMINGS:
            self._steps.append(self.current)

    def _looked_first(self, junction: str, now: float) -> Awaitable[None] | None:
        self.look_at = now + LOOK_SECONDS  # before looking: a wish made meanwhile has the next one look again
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a synchronous train, in a thread of its own
            self._look()
            self._begin(junction, perf_counter())
            return None
        return self._looked_async(junction)

    async def _looked_async(self, junction: str) -> None:
        try:
            self._heed(await self._store.ask(progress.asked_to_stop, [self.metadata_id]))
        except StoreError as error:
            logger.debug("run %s could not see whether it is to stop: %s", self.metadata_id, error)
        self._begin(junction, perf_counter())

    def _look(self) -> None:
        try:
            self._heed(self._store.read(progress.asked_to_stop, [self.metadata_id]))
        except StoreError as error:
            logger.debug("run %s could not see whether it is to stop: %s", self.metadata_id, error)

    def _heed(self, asked: dict[int, CancelReason]) -> None:
        for why in asked.values():
            self.stop(why)
