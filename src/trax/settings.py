"""Every setting, its default and what it means. Frozen, and checked where it is made.

Values come from `Trax(...)`, then from `TRAX_…` environment variables, then from rows an
operator wrote: the later one wins.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trax.errors import InvalidSetting, did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "TRAX_"


def _plain_seconds(value: Any) -> Any:
    """`TRAX_DEFAULT_JOB_TIMEOUT=90` means seconds; `PT90S` and `00:01:30` work as well."""
    return float(value) if isinstance(value, str) and value.replace(".", "", 1).isdigit() else value


AtLeastOne = Annotated[int, AfterValidator(lambda value: max(1, value))]
NeverNegative = Annotated[int, AfterValidator(lambda value: max(0, value))]
Boost = Annotated[int, AfterValidator(lambda value: min(max(0, value), 31))]
Time = Annotated[timedelta, BeforeValidator(_plain_seconds)]
Interval = Annotated[Time, Field(ge=timedelta(seconds=0.1))]
Duration = Annotated[Time, Field(gt=timedelta(0))]
Delay = Annotated[Time, Field(ge=timedelta(0))]
Count = Annotated[int, Field(ge=0)]


class Settings(BaseModel):
    """How this installation behaves. An omitted value takes the default beside its name."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    # the loops
    manifest_manager_enabled: bool = True
    job_dispatcher_enabled: bool = True
    manifest_manager_polling_interval: Interval = timedelta(seconds=5)
    job_dispatcher_polling_interval: Interval = timedelta(seconds=2)

    # the gate
    max_active_jobs: Count | None = 10
    max_queued_jobs_per_cycle: AtLeastOne | None = 100
    max_work_queue_entries_per_cycle: AtLeastOne | None = 200
    max_concurrent_dispatch: AtLeastOne = 1
    max_dispatch_attempts: NeverNegative = 5
    dependent_priority_boost: Boost = 16

    # failing and trying again
    default_max_retries: Count = 3
    default_retry_delay: Delay = timedelta(minutes=5)
    retry_backoff_multiplier: Annotated[float, Field(ge=1.0, allow_inf_nan=False)] = 2.0
    max_retry_delay: Delay = timedelta(hours=1)
    default_job_timeout: Duration = timedelta(minutes=20)
    timeout_counts_as_failure: bool = False
    stale_pending_timeout: Duration = timedelta(minutes=20)
    stale_in_progress_timeout: Duration = timedelta(minutes=60)
    default_misfire_policy: Literal["fire_once_now", "do_nothing"] = "fire_once_now"
    default_misfire_threshold: Delay = timedelta(seconds=60)

    # starting
    recover_stuck_jobs_on_startup: bool = True
    prune_orphaned_manifests: bool = True
    skip_migrations: bool = False

    # the workers
    local_worker_count: AtLeastOne | None = None
    local_polling_interval: Interval = timedelta(seconds=5)
    heartbeat_interval: Interval = timedelta(seconds=5)
    worker_lost_after: Interval = timedelta(seconds=20)
    shutdown_timeout: Delay = timedelta(seconds=30)

    # the records
    save_inputs: bool = True
    save_outputs: bool = True
    max_parameter_bytes: Count | None = 262_144
    auto_purge_dead_letters: bool = True
    dead_letter_retention_period: Duration = timedelta(days=30)
    metadata_cleanup_enabled: bool = False
    metadata_cleanup_interval: Interval = timedelta(minutes=1)
    metadata_cleanup_retention: Duration = timedelta(minutes=30)
    metadata_cleanup_batch_size: AtLeastOne = 1000

    @classmethod
    def load(cls, given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Self:
        """The settings from keyword arguments, overridden by the environment."""
        environment = os.environ if environment is None else environment
        return cls.checked({**cls._with_shorthand(given), **cls._from_environment(environment)})

    def updated(self, changes: Mapping[str, Any]) -> Self:
        """A copy with some values replaced, checked like the whole."""
        return self.checked({**self.model_dump(), **self._with_shorthand(changes)})

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as refused:
            raise InvalidSetting("; ".join(_told(error) for error in refused.errors())) from None

    @classmethod
    def _with_shorthand(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """`polling_interval` sets both loops at once; a name of its own still wins."""
        values = dict(given)
        if "polling_interval" in values:
            both = values.pop("polling_interval")
            values.setdefault("manifest_manager_polling_interval", both)
            values.setdefault("job_dispatcher_polling_interval", both)
        return values

    @classmethod
    def _from_environment(cls, environment: Mapping[str, str]) -> dict[str, Any]:
        names = {name: PREFIX + name.upper() for name in cls.model_fields}
        return {
            name: None if environment[variable].lower() in {"", "none"} else environment[variable]
            for name, variable in names.items()
            if variable in environment
        }


def _told(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"there is no setting {name!r}{did_you_mean(name, Settings.model_fields)}"
    return f"setting {name!r}: {error['msg']} (got {shown(error['input'])})"
