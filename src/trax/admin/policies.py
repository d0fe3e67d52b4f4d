"""Retry policies as they are stored: what code says, and what counts for those that say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.records.retry_policy import RetryPolicy
from trax.schedule.decide import Rules

if TYPE_CHECKING:
    from random import Random

    from trax.settings import Settings
    from trax.train import Retry


def default_policy(settings: Settings) -> RetryPolicy:
    return RetryPolicy(
        max_retries=settings.default_max_retries,
        delay=settings.default_retry_delay,
        multiplier=settings.retry_backoff_multiplier,
        max_delay=settings.max_retry_delay,
    )


def rules_of(settings: Settings, *, random: Random | None = None) -> Rules:
    """What decides about a manifest beside itself; `random` draws the jitter of each retry."""
    return Rules(
        retry=default_policy(settings),
        dependent_priority_boost=settings.dependent_priority_boost,
        failure_counting=settings.failure_counting,
        random=random,
    )


def policy_of(retry: Retry) -> RetryPolicy:
    """What code says about trying again, as it is stored."""
    return RetryPolicy(
        max_retries=retry.max_retries,
        delay=retry.delay,
        multiplier=retry.multiplier,
        max_delay=retry.max_delay,
        jitter=retry.jitter,
        give_up_on=tuple(map(qualified_name, retry.give_up_on)),
    )


def qualified_name(kind: type) -> str:
    """A class as a stored policy names it, since a row can never bring the class itself back."""
    return f"{kind.__module__}.{kind.__qualname__}"
