"""Trains in words and schemas, for those who want to run one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from trax.train import Retry
from trax.train.declared import name_of

if TYPE_CHECKING:
    from trax.train import Train, TrainOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSummary:
    """What a train takes, gives and says about its runs."""

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
    """The same with the JSON Schemas of its input and output; null where there is none to give."""

    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None


def described(train: Train[Any, Any]) -> TrainSummary:
    return TrainSummary(**_words(train))


def with_schemas(train: Train[Any, Any]) -> TrainWithSchemas:
    return TrainWithSchemas(
        **_words(train), input_schema=schema_of(train.input_type), output_schema=schema_of(train.output_type)
    )


def schema_of(declared: Any) -> dict[str, Any] | None:
    """The JSON Schema of a type, by the names that are written in Python; None if it has none."""
    try:
        return TypeAdapter(declared).json_schema(by_alias=False)
    except (PydanticUserError, NameError, TypeError):
        return None


def _words(train: Train[Any, Any]) -> dict[str, Any]:
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
    """None where the settings decide."""
    is_left_open = options.retry is None and options.max_retries is None
    return None if is_left_open else options.policy(Retry()).max_retries
