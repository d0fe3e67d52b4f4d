"""`/trains`: list, enqueue and run trains, with or without the app's code; their JSON Schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from starlette.responses import Response

from trax.app.queue import enqueue_without_code, run_by_name
from trax.bounds import LONGEST_NAME
from trax.clock import TextDuration
from trax.engine.enqueue import QueueKeywords
from trax.errors import InvalidInput, NotFound, StoreError, TraxError
from trax.records import Metadata, WorkQueueEntry
from trax.settings.kinds import Delay, Duration
from trax.train import Retry
from trax.train.annotations import name_of
from trax.train.secrets import holds_secrets
from trax.web.api.bodies import Body, JsonRoute
from trax.web.api.paging import JsonWriter, Moment, Name, Priority, WholeNumber, mask_record
from trax.web.context import InjectedContext
from trax.web.problems import Refusal, problem

if TYPE_CHECKING:
    from pydantic_core.core_schema import WithDefaultSchema

    from trax.app.app import Trax
    from trax.train import Train, TrainOptions
    from trax.web.masking import Mask
    from trax.worker.entry import QueuedEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSummary:
    """A train: its types, its route and its options."""

    name: str
    aliases: tuple[str, ...]
    route: str
    input_type: str
    output_type: str
    priority: int
    group: str | None
    max_retries: int | None
    timeout: TextDuration | None
    cpu: bool
    submitter: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainWithSchemas(TrainSummary):
    """A train with the JSON Schemas of its input and output; null if a type has none."""

    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None


def summarize_train(train: Train[Any, Any]) -> TrainSummary:
    return TrainSummary(**_summary_fields(train))


def train_with_schemas(train: Train[Any, Any], mask: Mask) -> TrainWithSchemas:
    return TrainWithSchemas(
        **_summary_fields(train),
        input_schema=schema_of(train.input_type, mask),
        output_schema=schema_of(train.output_type, mask),
    )


def schema_of(declared_type: Any, mask: Mask) -> dict[str, Any] | None:
    """The JSON Schema of a type, with Python field names and no default of a secret; None if it has none."""
    try:
        schema = TypeAdapter(declared_type).json_schema(by_alias=False, schema_generator=_SchemaGenerator)
        return mask.hide_in_schema(schema)
    except (PydanticUserError, NameError, TypeError):
        return None


class _SchemaGenerator(GenerateJsonSchema):
    """Leaves out the defaults of secrets: of `Secret[int]` pydantic shows one, or fails to encode it."""

    def default_schema(self, schema: WithDefaultSchema) -> dict[str, Any]:
        if not holds_secrets(schema["schema"]):
            return super().default_schema(schema)
        made = self.generate_inner(schema["schema"])
        return made if "$ref" in made else {**made, "writeOnly": True}


def _summary_fields(train: Train[Any, Any]) -> dict[str, Any]:
    options = train.options
    return {
        "name": train.name,
        "aliases": tuple(options.aliases),
        "route": repr(train.route),
        "input_type": name_of(train.input_type),
        "output_type": name_of(train.output_type),
        "priority": options.priority,
        "group": options.group,
        "max_retries": _max_retries(options),
        "timeout": options.timeout,
        "cpu": options.cpu,
        "submitter": options.submitter,
    }


def _max_retries(options: TrainOptions) -> int | None:
    """The retry limit of the train; None if the settings decide."""
    is_left_open = options.retry is None and options.max_retries is None
    return None if is_left_open else options.retry_policy(Retry()).max_retries


router = APIRouter(prefix="/trains", tags=["trains"], route_class=JsonRoute)

TrainName = Annotated[str, Path(min_length=1, max_length=LONGEST_NAME)]


class Trains(BaseModel):
    """The trains of this process; `elsewhere` names those that only other workers have."""

    items: list[TrainSummary]
    elsewhere: list[str]
    has_code: bool


class RunRequest(Body):
    """The input of a run."""

    input: Any = None


class QueueRequest(RunRequest):
    """The input and queue options; omitted options default to those of the train."""

    priority: Priority | None = None
    group: Name | None = None
    delay: Delay | None = None
    at: Moment | None = None
    unique: Name | None = None
    max_retries: WholeNumber | None = None
    timeout: Duration | None = None


trains_response, train_response = JsonWriter(Trains), JsonWriter(TrainWithSchemas)

entry_response, run_response = JsonWriter(WorkQueueEntry), JsonWriter(Metadata)


@router.get("", response_model=Trains)
async def list_trains(context: InjectedContext) -> Response:
    """List trains by name."""
    items = [summarize_train(context.app.trains.get(name)) for name in context.app.trains.names]
    running = {name for view in await context.app.workers.list(jobs=1) for name in view.worker.trains}
    elsewhere = sorted(name for name in running if name not in context.app.trains)
    return trains_response(
        Trains.model_construct(items=items, elsewhere=elsewhere, has_code=has_code(context.app))
    )


@router.get("/{name:segment}", response_model=TrainWithSchemas)
async def get_train(context: InjectedContext, name: TrainName) -> Response:
    """Get one train with the JSON Schemas of its input and output."""
    return train_response(train_with_schemas(context.app.trains.get(name), context.mask))


@router.post("/{name:segment}/queue", response_model=WorkQueueEntry, status_code=201)
async def queue_train(context: InjectedContext, name: TrainName, body: QueueRequest) -> Response:
    """Enqueue a job. Without the app's code the input is validated only by the worker."""
    options: QueueKeywords = {
        "priority": body.priority,
        "group": body.group,
        "delay": body.delay,
        "at": body.at,
        "unique": body.unique,
        "max_retries": body.max_retries,
        "timeout": body.timeout,
    }
    queued = await enqueue(context.app, name, _input(context, body), options)
    return entry_response(mask_record(queued, context.mask), 201)


@router.post("/{name:segment}/run", response_model=Metadata)
async def run_train(context: InjectedContext, name: TrainName, body: RunRequest) -> Response:
    """Run a train in this process and wait for its end; a failure is part of the returned execution."""
    if not has_code(context.app):
        raise Refusal(
            problem(
                409,
                "this process has no trains to run",
                hint="start it with the app: trax dashboard APP",
            )
        )
    run = await context.app.run_in_app_loop(run_by_name(context.app.context, name, _input(context, body)))
    return run_response(mask_record(run, context.mask))


def _input(context: InjectedContext, body: RunRequest) -> Any:
    """The input that was sent; rejects marks of hidden values that a client copied from a response."""
    return context.mask.restore(body.input, None)


def has_code(app: Trax) -> bool:
    """Whether trains are registered in this process; `trax dashboard` without an app has none."""
    return len(app.trains) > 0


async def enqueue(app: Trax, train: str, value: Any, options: QueueKeywords) -> QueuedEntry:
    """Enqueue a job. Without the app's code the input is validated only by the worker."""
    if has_code(app):
        return await app.run_in_app_loop(app.queue(train, value, **options))
    return await enqueue_without_code(app.context, train, value, options)


async def rerun(app: Trax, metadata_id: int) -> QueuedEntry:
    """Enqueue the job of a run again; 409 if the run exists but cannot be repeated."""
    try:
        return await app.run_in_app_loop(app.executions.rerun(metadata_id))
    except (NotFound, InvalidInput, StoreError):
        raise
    except TraxError as error:
        raise Refusal(problem(409, str(error), code="cannot_rerun")) from error
