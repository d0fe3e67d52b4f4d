"""What a caller asks for, checked word by word and made into a wish."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypedDict

from trax.admin.policies import policy_of
from trax.errors import DefinitionError
from trax.host.checks import MOMENT, WHOLE
from trax.host.parameters import fitting
from trax.queue import Wish
from trax.records.external_id import new_external_id
from trax.records.states import Origin
from trax.schedule.requirement import COUNT, DURATION, LABEL, RETRY, TIME_LIMIT
from trax.train import Retry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from trax.schedule.requirement import Requirement
    from trax.settings import Settings
    from trax.store.callers import Lendable
    from trax.train import Codec, Train, TrainOptions


class ManyKeywords(TypedDict, total=False):
    """How entries wait and run: what is said here replaces what their train says.

    `delay` holds them back for so long, `at` until that moment. With a `connection` they are written in the
    caller's own transaction, and exist exactly if that commits.
    """

    priority: int | None
    """From 0 to 31; the higher one goes first. Else the train's."""
    group: str | None
    """Whose limit and priority count. Else the train's, else none."""
    delay: timedelta | None
    """How long it waits at least."""
    at: datetime | None
    """The moment before which it does not run; instead of `delay`."""
    retry: Retry | None
    """How a run that failed is tried again. Else the train's, else the settings'."""
    max_retries: int | None
    """The same for the number alone; it has the last word."""
    timeout: timedelta | None
    """How long a run may take. Else the train's, else `default_job_timeout`."""
    connection: Lendable | None
    """A SQLAlchemy connection or session of yours: the entry exists exactly if you commit."""


class QueueKeywords(ManyKeywords, total=False):
    """The same for one entry, which may have a `unique` key: until its job is over, no other gets it."""

    unique: str | None
    """A key: while the job that holds it is not over, queueing gives its entry instead of a new one."""


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


def wish_for(
    train: Train[Any, Any],
    texts: Iterable[str],
    how: QueueKeywords,
    settings: Settings,
    *,
    origin: Origin = Origin.QUEUE,
) -> Wish:
    """A wish for runs with these inputs, which are JSON text that the train's type has accepted."""
    said: dict[str, Any] = {name: value for name, value in how.items() if value is not None}
    for name, value in said.items():
        if name in CHECKS:
            CHECKS[name](name, value)
    if "delay" in said and "at" in said:
        raise DefinitionError("say either delay or at: both are about when the entry may run")
    options = train.options
    timeout: timedelta | None = said.get("timeout", options.timeout)
    return Wish(
        train=train.name,
        origin=origin,
        inputs={new_external_id(): fitting(text, train, settings) for text in texts},
        priority=said.get("priority", options.priority),
        group=said.get("group", options.group),
        delay=said.get("delay"),
        at=said.get("at"),
        unique=said.get("unique"),
        timeout_seconds=timeout.total_seconds() if timeout else None,
        retry=_retry_json(options, said, settings),
    )


def text_of_plain(value: Any, train: Train[Any, Any], codec: Codec[Any], settings: Settings) -> str:
    """The input of a train that was named: plain data, read like JSON that came from elsewhere."""
    return codec.encode(value_of_plain(value, train, codec, settings))


def value_of_plain(value: Any, train: Train[Any, Any], codec: Codec[Any], settings: Settings) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return value  # not plain: an instance of the type itself, or something it refuses
    return codec.decode(fitting(text, train, settings))


def _retry_json(options: TrainOptions, said: dict[str, Any], settings: Settings) -> str | None:
    """The policy that was asked for, or the train's own, travels with the entry.

    Without either, the settings of the day count.
    """
    if "retry" in said:
        options = replace(options, retry=said["retry"], max_retries=None)
    if "max_retries" in said:
        options = replace(options, max_retries=said["max_retries"])
    if options.retry is None and options.max_retries is None:
        return None
    default = Retry(
        max_retries=settings.default_max_retries,
        delay=settings.default_retry_delay,
        multiplier=settings.retry_backoff_multiplier,
        max_delay=settings.max_retry_delay,
    )
    return policy_of(options.policy(default)).to_json()
