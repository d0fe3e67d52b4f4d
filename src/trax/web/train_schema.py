"""Summaries and JSON Schemas of trains, for the API and the form that runs one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from trax.train import Retry
from trax.train.annotations import name_of

if TYPE_CHECKING:
    from trax.train import Train, TrainOptions


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
    timeout: timedelta | None
    cpu: bool
    submitter: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainWithSchemas(TrainSummary):
    """A train with the JSON Schemas of its input and output; null if a type has none."""

    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None


def summarize_train(train: Train[Any, Any]) -> TrainSummary:
    return TrainSummary(**_summary_fields(train))


def train_with_schemas(train: Train[Any, Any]) -> TrainWithSchemas:
    return TrainWithSchemas(
        **_summary_fields(train),
        input_schema=schema_of(train.input_type),
        output_schema=schema_of(train.output_type),
    )


def schema_of(declared_type: Any) -> dict[str, Any] | None:
    """The JSON Schema of a type, with Python field names; None if it has none."""
    try:
        return TypeAdapter(declared_type).json_schema(by_alias=False)
    except (PydanticUserError, NameError, TypeError):
        return None


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
