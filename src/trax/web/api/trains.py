"""What can run: the trains of the app, as far as its code is here."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel
from starlette.responses import Response

from trax.bounds import LONGEST_NAME
from trax.host.by_name import run_by_name
from trax.host.wishes import QueueKeywords
from trax.records import Metadata, WorkQueueEntry
from trax.web.api.asking import asked_for, has_code
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import Moment, Name, Priority, Seconds, WholeNumber
from trax.web.api.writing import Writes, shown
from trax.web.described import TrainSummary, TrainWithSchemas, described, with_schemas
from trax.web.problems import Refusal, problem
from trax.web.room import TheRoom

router = APIRouter(prefix="/trains", tags=["trains"], route_class=JsonRoute)

TrainName = Annotated[str, Path(min_length=1, max_length=LONGEST_NAME)]


class Trains(BaseModel):
    """The trains whose code is here; `elsewhere` are the names of those that only other workers know."""

    items: list[TrainSummary]
    elsewhere: list[str]
    has_code: bool


class ToRun(Body):
    """What to run it with."""

    input: Any = None


class ToQueue(ToRun):
    """What to run it with, and how it waits; what is left out, the train says."""

    priority: Priority | None = None
    group: Name | None = None
    delay_seconds: Seconds | None = None
    at: Moment | None = None
    unique: Name | None = None
    max_retries: WholeNumber | None = None


some, one = Writes(Trains), Writes(TrainWithSchemas)
entry, record = Writes(WorkQueueEntry), Writes(Metadata)


@router.get("", response_model=Trains)
async def list_trains(room: TheRoom) -> Response:
    """In the order of their names."""
    items = [described(room.app.trains.get(name)) for name in room.app.trains.names]
    running = {name for view in await room.app.workers.list(jobs=1) for name in view.worker.trains}
    elsewhere = sorted(name for name in running if name not in room.app.trains)
    return some(Trains.model_construct(items=items, elsewhere=elsewhere, has_code=has_code(room.app)))


@router.get("/{name:segment}", response_model=TrainWithSchemas)
async def get_train(room: TheRoom, name: TrainName) -> Response:
    """With the JSON Schemas of its input and its output."""
    return one(with_schemas(room.app.trains.get(name)))


@router.post("/{name:segment}/queue", response_model=WorkQueueEntry, status_code=201)
async def queue_train(room: TheRoom, name: TrainName, body: ToQueue) -> Response:
    """Ask for a run in the background. Without the app's code the input is checked by the worker."""
    delay = None if body.delay_seconds is None else timedelta(seconds=body.delay_seconds)
    how: QueueKeywords = {
        "priority": body.priority,
        "group": body.group,
        "delay": delay,
        "at": body.at,
        "unique": body.unique,
        "max_retries": body.max_retries,
    }
    queued = await asked_for(room.app, name, _input(room, body), how)
    return entry(shown(queued, room.mask), 201)


@router.post("/{name:segment}/run", response_model=Metadata)
async def run_train(room: TheRoom, name: TrainName, body: ToRun) -> Response:
    """Run it here and now and wait for its end; the record says how it went, also when it failed."""
    if not has_code(room.app):
        raise Refusal(
            problem(
                409,
                "no train can run here: this process has none",
                hint="start it with the app: trax dashboard APP",
            )
        )
    ran = await room.app.at_home(run_by_name(room.app.parts, name, _input(room, body)))
    return record(shown(ran, room.mask))


def _input(room: TheRoom, body: ToRun) -> Any:
    """What was sent. The mark that stands for a hidden value is no value: a reader may have sent it back."""
    return room.mask.restore(body.input, None)
