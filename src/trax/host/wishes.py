"""Validate the arguments of queue calls and build the enqueue request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypedDict

from trax.admin.policies import policy_of
from trax.errors import DefinitionError
from trax.host.checks import MOMENT, WHOLE
from trax.host.parameters import check_input_size
from trax.queue import EnqueueRequest
from trax.records.external_id import new_external_id
from trax.records.states import Origin
from trax.schedule.requirement import COUNT, DURATION, LABEL, RETRY, TIME_LIMIT
from trax.train import Retry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from trax.schedule.requirement import Requirement
    from trax.settings import Settings
    from trax.store.callers import CallerConnection
    from trax.train import Codec, Train, TrainOptions


class ManyKeywords(TypedDict, total=False):
    """Options of queue calls; they override the options of the train.

    With a `connection` the entries are written in the caller's transaction, and exist only if it commits.
    """

    priority: int | None
    """From 0 to 31; higher goes first. Default: the train's."""
    group: str | None
    """The group, for its limit and priority. Default: the train's, else none."""
    delay: timedelta | None
    """Run no earlier than this much later."""
    at: datetime | None
    """Run no earlier than this time; instead of `delay`."""
    retry: Retry | None
    """The retry policy. Default: the train's, else the settings'."""
    max_retries: int | None
    """Overrides `max_retries` of the retry policy."""
    timeout: timedelta | None
    """Time limit of a run. Default: the train's, else `default_job_timeout`."""
    connection: CallerConnection | None
    """Your SQLAlchemy connection or session: the entry exists only if you commit."""


class QueueKeywords(ManyKeywords, total=False):
    """The same for one entry, which may also have a `unique` key."""

    unique: str | None
    """A key: until the job that holds it has ended, queueing returns its entry instead of a new one."""


CHECKS: Final[dict[str, Requirement]] = {
    "priority": WHOLE,
    "group": LABEL,
    "delay": DURATION,
    "at": MOMENT,
    "retry": RETRY,
    "max_retries": COUNT,
    "timeout": TIME_LIMIT,
    "unique": LABEL,
}


def build_request(
    train: Train[Any, Any],
    texts: Iterable[str],
    keywords: QueueKeywords,
    settings: Settings,
    *,
    origin: Origin = Origin.QUEUE,
) -> EnqueueRequest:
    """Build the request for jobs with these inputs: JSON text that is valid for the train's input type."""
    overrides: dict[str, Any] = {name: value for name, value in keywords.items() if value is not None}
    for name, value in overrides.items():
        if name in CHECKS:
            CHECKS[name](name, value)
    if "delay" in overrides and "at" in overrides:
        raise DefinitionError("delay and at cannot be combined; give one of them")
    options = train.options
    timeout: timedelta | None = overrides.get("timeout", options.timeout)
    return EnqueueRequest(
        train=train.name,
        origin=origin,
        inputs={new_external_id(): check_input_size(text, train, settings) for text in texts},
        priority=overrides.get("priority", options.priority),
        group=overrides.get("group", options.group),
        delay=overrides.get("delay"),
        at=overrides.get("at"),
        unique=overrides.get("unique"),
        timeout_seconds=timeout.total_seconds() if timeout else None,
        retry=_retry_json(options, overrides, settings),
    )


def encode_plain_input(value: Any, train: Train[Any, Any], codec: Codec[Any], settings: Settings) -> str:
    """Encode plain data as the input of a train given by name: validated like JSON from outside."""
    return codec.encode(decode_plain_input(value, train, codec, settings))


def decode_plain_input(value: Any, train: Train[Any, Any], codec: Codec[Any], settings: Settings) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return value  # not plain data: an instance of the input type, or invalid
    return codec.decode(check_input_size(text, train, settings))


def _retry_json(options: TrainOptions, overrides: dict[str, Any], settings: Settings) -> str | None:
    """The retry policy stored in the entry: that of the call, else of the train.

    None if neither has one: then the settings apply when the run fails.
    """
    if "retry" in overrides:
        options = replace(options, retry=overrides["retry"], max_retries=None)
    if "max_retries" in overrides:
        options = replace(options, max_retries=overrides["max_retries"])
    if options.retry is None and options.max_retries is None:
        return None
    default = Retry(
        max_retries=settings.default_max_retries,
        delay=settings.default_retry_delay,
        multiplier=settings.retry_backoff_multiplier,
        max_delay=settings.max_retry_delay,
    )
    return policy_of(options.retry_policy(default)).to_json()
