"""Chaos jobs with a submitter of their own, and a server that may be made to die while it hands over."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trax import Trax
from trax.remote import hand_over
from trax.remote.inline import Inline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax import Submission

DIES = os.environ.get("DIES")


class Courier:
    """Writes down what it is handed, and runs it in the process that hands it over."""

    name = "courier"

    async def submit(self, batch: Sequence[Submission]) -> None:
        if DIES == "in the call":
            die()
        note(batch)
        await Inline(app).submit(batch)


def note(batch: Sequence[Submission]) -> None:
    with Path("handed").open("a", encoding="utf-8") as handed:
        handed.writelines(f"{run.metadata_id}\n" for run in batch)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def take_and_die(self: hand_over.HandOver, connection: Any, most: int) -> Any:
    """There is something to hand over, and nobody has been told that it is taken."""
    taken = take(self, connection, most)
    return die() if taken[0] else taken


app = Trax(submitter=Courier())


@app.train
async def work(name: str) -> str:
    return name


setattr(hand_over, "GRACE", timedelta(seconds=1))  # noqa: B010 - a constant, but nobody has a minute
take: Any = hand_over.HandOver._claim_runs  # pyright: ignore[reportPrivateUsage]
if DIES == "before it has taken":
    setattr(hand_over.HandOver, "_claim_runs", take_and_die)  # noqa: B010 - typed otherwise
