"""Retry policies and decision rules, built from settings and from code."""

from __future__ import annotations

from contextvars import ContextVar
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

from trax.records.manifest import RetryPolicy
from trax.schedule.decide import Rules

if TYPE_CHECKING:
    from trax.settings import Settings
    from trax.train import Retry


JITTER: Final[ContextVar[Random]] = ContextVar("trax_jitter")
"""Set by a simulation, so that its seed decides the jitter of retries and the variance of schedules."""
_SYSTEM_RANDOM: Final = SystemRandom()


def jitter() -> Random:
    """The source of the jitter of retries and the variance of schedules."""
    return JITTER.get(_SYSTEM_RANDOM)


def default_policy(settings: Settings) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=settings.default_max_attempts,
        delay=settings.default_retry_delay,
        multiplier=settings.retry_backoff_multiplier,
        max_delay=settings.max_retry_delay,
    )


def rules_of(settings: Settings, *, random: Random | None = None) -> Rules:
    """The rules for deciding about manifests; `random` gives the jitter of each retry."""
    return Rules(
        retry=default_policy(settings),
        dependent_priority_boost=settings.dependent_priority_boost,
        failure_counting=settings.failure_counting,
        random=random,
    )


def policy_of(retry: Retry) -> RetryPolicy:
    """The stored form of a Retry declared in code."""
    return RetryPolicy(
        max_attempts=retry.max_attempts,
        delay=retry.delay,
        multiplier=retry.multiplier,
        max_delay=retry.max_delay,
        jitter=retry.jitter,
        give_up_on=tuple(map(full_class_name, retry.give_up_on)),
    )


def full_class_name(kind: type) -> str:
    """The name of an exception class in a stored policy."""
    return f"{kind.__module__}.{kind.__qualname__}"
