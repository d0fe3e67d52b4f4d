"""The settings themselves. Each has its default beside its name, and what it means below."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from trax.errors import InvalidSetting, did_you_mean, shown
from trax.masking import HIDDEN, is_secret_name
from trax.settings.kinds import (
    DAY,
    HOUR,
    SECOND,
    AtLeastOne,
    Beat,
    Boost,
    Bounds,
    Count,
    Delay,
    Duration,
    Effective,
    Interval,
    Labels,
    LogThreshold,
    Multiplier,
    Names,
    NeverNegative,
    Patience,
    SettingOrigin,
    Slots,
    Time,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PREFIX = "TRAX_"
BEYOND = ("greater_than", "greater_than_equal", "less_than_equal")


class Settings(BaseModel):
    """How this installation behaves. An omitted value takes the default beside its name."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True
    )

    # the loops
    manifest_manager_enabled: bool = True
    """Whether manifests that are due are written to the work queue."""
    job_dispatcher_enabled: bool = True
    """Whether queued entries are let through the gate; when off, they accumulate."""
    manifest_manager_polling_interval: Interval = timedelta(seconds=5)
    """How long the manager waits at most before it looks again."""
    job_dispatcher_polling_interval: Interval = timedelta(seconds=2)
    """How long the dispatcher waits at most before it looks again."""

    # the gate
    max_active_jobs: Count | None = 10
    """How many runs may be pending or in progress at once, on all servers together; None: no limit."""
    max_queued_jobs_per_cycle: AtLeastOne | None = 100
    """How many entries of one group a cycle of the dispatcher considers; None: all."""
    max_work_queue_entries_per_cycle: AtLeastOne | None = 200
    """How many entries a cycle of the manager writes, shared fairly among the groups; None: all."""
    max_concurrent_dispatch: Slots = 1
    """How many calls of each submitter a server has under way at once."""
    max_dispatch_attempts: NeverNegative = 5
    """How often a hand-over may fail before it is given up; 0: it is not tried again."""
    hand_off_timeout: Annotated[Time, Field(gt=timedelta(0), le=DAY)] = timedelta(seconds=30)
    """How long a submitter may take to accept runs before the hand-over counts as failed."""
    dependent_priority_boost: Boost = 16
    """What is added to the priority of a run that follows another."""

    # failing and trying again
    default_max_retries: Annotated[Count, Effective.NEXT_SEEDING] = 3
    """How many failures make a dead letter, where neither manifest nor train say so."""
    default_retry_delay: Delay = timedelta(minutes=5)
    """How long the first retry waits."""
    retry_backoff_multiplier: Multiplier = 2.0
    """How much longer each further retry waits; 1.0: always as long."""
    max_retry_delay: Delay = timedelta(hours=1)
    """How long a retry waits at most."""
    default_job_timeout: Duration = timedelta(minutes=20)
    """How long a run may take before it is asked to stop, where nothing else is said."""
    timeout_counts_as_failure: bool = False
    """Whether a run that was stopped for taking too long counts as a failure."""
    failure_counting: Literal["consecutive", "lifetime"] = "consecutive"
    """Which failures make a dead letter: those in a row, or all since a person last dealt with it."""
    stale_pending_timeout: Duration = timedelta(minutes=20)
    """When a run that others were to begin is handed over again; as often as a hand-over may fail."""
    unknown_train_timeout: Duration | None = None
    """How long an entry waits for a worker that takes its train; None: `stale_pending_timeout`."""
    stale_in_progress_timeout: Duration = timedelta(minutes=60)
    """When a run that no worker holds counts as failed."""
    default_misfire_policy: Annotated[Literal["fire_once_now", "do_nothing"], Effective.NEXT_SEEDING] = (
        "fire_once_now"
    )
    """What happens to occurrences that were missed, where the manifest does not say."""
    default_misfire_threshold: Delay = timedelta(seconds=60)
    """How late is not yet missed."""

    # starting
    recover_stuck_jobs_on_startup: Annotated[bool, Effective.NEXT_START] = True
    """Whether a server that starts fails the runs whose worker is gone."""
    prune_orphaned_manifests: Annotated[bool, Effective.NEXT_START] = True
    """Whether manifests that code no longer declares are retired."""
    skip_migrations: Annotated[bool, Effective.FIXED] = False
    """Whether the tables are only checked, and not brought up to date, when the database is opened."""

    # the database
    database_connect_timeout: Annotated[Time, Effective.FIXED, Field(ge=2 * SECOND, le=HOUR)] = timedelta(
        seconds=10
    )
    """How long connecting to PostgreSQL may take, for each address that the host has."""
    database_network_timeout: Annotated[Time, Effective.FIXED, Field(ge=SECOND, le=HOUR)] = timedelta(
        seconds=20
    )
    """How long PostgreSQL's host may be silent before a connection to it counts as lost."""
    database_statement_timeout: Annotated[
        Annotated[Time, Field(ge=SECOND, le=DAY)] | None, Effective.FIXED
    ] = timedelta(seconds=60)
    """How long a statement may take in PostgreSQL, except to migrate, start or clean up; None: no limit."""

    # hearing from other processes
    notifications: Annotated[bool, Effective.FIXED] = True
    """Whether processes wake each other through PostgreSQL; when off, they find out at the next poll."""
    listen_url: Annotated[str | None, Effective.FIXED, Field(repr=False)] = None
    """Where to listen when the database's own address leads through a pooler; it may hold a password."""

    # the workers
    local_worker_count: Slots | None = None
    """How many runs one process executes at once; None: as many as it has processors."""
    local_polling_interval: Interval = timedelta(seconds=5)
    """How long a worker waits at most before it looks again for runs to take."""
    heartbeat_interval: Beat = timedelta(seconds=5)
    """How often a worker says that it lives."""
    worker_lost_after: Annotated[Time, Field(ge=SECOND / 5, le=DAY)] = timedelta(seconds=20)
    """How long a worker may be silent before its runs count as failed; longer than its heartbeat."""
    shutdown_timeout: Patience = timedelta(seconds=30)
    """How long a worker that stops lets its runs end before it puts them back."""

    max_concurrent_runs: AtLeastOne | None = None
    """How many `app.run` calls one process carries out at once; the others wait. None: no limit."""

    # the place
    host_environment: Annotated[Word | None, Effective.FIXED] = None
    """What kind of place this process runs in; None: found out."""
    host_instance_id: Annotated[Word | None, Effective.FIXED] = None
    """Which instance of that place it is; None: found out."""
    host_labels: Annotated[Labels, Effective.FIXED] = {}
    """Words of your own about this process, shown with its worker: `zone=b,team=etl`."""

    app_version: Annotated[Word | None, Effective.FIXED] = None
    """Which release of your own code this process runs, shown with its worker."""

    # the records
    save_inputs: bool = True
    """Whether records keep the input of their run."""
    save_outputs: bool = True
    """Whether records keep the output of their run."""
    max_input_bytes: Count | None = 262_144
    """What the JSON of an input may measure to be queued or scheduled; None: no limit."""
    max_parameter_bytes: Count | None = 262_144
    """What a saved input or output may measure before a note stands in its place; None: no limit."""
    capture_logs: Annotated[LogThreshold | None, Effective.NEXT_START] = "information"
    """From which level on the lines that a run logs are kept with its record; None: none are."""
    capture_logs_except: Names = ()
    """Loggers whose lines are not kept; `*` stands for anything."""
    junction_progress: bool = True
    """Whether records show the junction that runs, and keep how long each took."""
    auto_purge_dead_letters: bool = True
    """Whether dead letters that were dealt with are deleted after a while."""
    dead_letter_retention_period: Duration = timedelta(days=30)
    """How long they are kept."""
    audit_retention_period: Duration | None = timedelta(days=365)
    """How long it is remembered what operators did; None: for ever."""
    metadata_cleanup_enabled: bool = False
    """Whether old records are deleted."""
    metadata_cleanup_interval: Interval = timedelta(minutes=1)
    """How often that is done."""
    metadata_cleanup_retention: Duration = timedelta(minutes=30)
    """How long ago a run must have ended for its record to be deleted."""
    metadata_cleanup_batch_size: AtLeastOne | None = 1000
    """How many records are deleted in one transaction; None: all."""
    metadata_cleanup_trains: Names = ()
    """Whose records are deleted, beside those of the administrative trains."""

    @classmethod
    def load(cls, given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Self:
        """The settings from keyword arguments, overridden by the environment."""
        environment = os.environ if environment is None else environment
        return cls.checked({**cls.with_shorthand(given), **cls._from_environment(environment)})

    def updated(self, changes: Mapping[str, Any]) -> Self:
        """A copy with some values replaced, checked like the whole."""
        return self.checked({**self.model_dump(), **self.with_shorthand(changes)})

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as refused:
            errors = refused.errors()
            reasons = {name: _told(error) for error in errors for name in _names(error)}
            raise InvalidSetting("; ".join(map(_told, errors)), reasons) from None

    def overridden(self, rows: Mapping[str, Any]) -> tuple[Self, dict[str, str]]:
        """A copy with an operator's values on top, and what had to be left out of them, with the reason.

        A row may have been written by another version of this code: one that cannot work any more must not
        stop the server, and must not take the others with it.
        """
        fixed = [name for name in rows if name in Settings.model_fields and self.is_fixed(name)]
        refused = dict.fromkeys(fixed, f"it is {Effective.FIXED}")
        kept = {name: value for name, value in rows.items() if name not in refused}
        while True:
            try:
                return type(self).model_validate({**self.model_dump(), **kept}), refused
            except ValidationError as error:
                bad = {name: _told(one) for one in error.errors() for name in _names(one) if name in kept}
                if not bad:
                    raise  # not the rows' fault
            refused |= bad
            kept = {name: value for name, value in kept.items() if name not in bad}

    @classmethod
    def bounds(cls, name: str) -> Bounds | None:
        """Between what a setting must be that is a number or a length of time."""
        found = list(_constraints(cls.model_fields[name])) if name in cls.model_fields else []
        least = [one.ge if isinstance(one, Ge) else one.gt for one in found if isinstance(one, Ge | Gt)]
        most = [one.le for one in found if isinstance(one, Le)]
        is_above = any(isinstance(one, Gt) for one in found)
        return Bounds(least[0], most[0], is_above=is_above) if least and most else None

    def spelled(self, names: Iterable[str]) -> dict[str, Any]:
        """Some values as plain JSON data, the way they are stored."""
        return self.model_dump(mode="json", include=set(names))

    @classmethod
    def effective(cls, name: str) -> Effective:
        """When an edit of this setting is seen by servers that run."""
        said = [word for word in cls.model_fields[name].metadata if isinstance(word, Effective)]
        return said[0] if said else Effective.NEXT_CYCLE

    @classmethod
    def is_fixed(cls, name: str) -> bool:
        return cls.effective(name) is Effective.FIXED

    @classmethod
    def origins(
        cls, given: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> dict[str, SettingOrigin]:
        """Who says what each setting is, as far as `load` can know."""
        environment = os.environ if environment is None else environment
        return {
            **dict.fromkeys(cls.model_fields, SettingOrigin.DEFAULT),
            **dict.fromkeys(cls.with_shorthand(given), SettingOrigin.CODE),
            **dict.fromkeys(cls._from_environment(environment), SettingOrigin.ENVIRONMENT),
        }

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.worker_lost_after <= self.heartbeat_interval:
            raise PydanticCustomError(
                "together",
                "worker_lost_after ({lost}) must be longer than heartbeat_interval ({beat}): "
                "otherwise every worker would be taken for dead between two beats",
                {
                    "lost": str(self.worker_lost_after),
                    "beat": str(self.heartbeat_interval),
                    "names": ("heartbeat_interval", "worker_lost_after"),
                },
            )
        return self

    @classmethod
    def with_shorthand(cls, given: Mapping[str, Any]) -> dict[str, Any]:
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
    if error["type"] == "together":
        return error["msg"]
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"there is no setting {name!r}{did_you_mean(name, Settings.model_fields)}"
    got = HIDDEN if is_secret_name(name) else error["input"]
    bounds = Settings.bounds(str(error["loc"][0]))
    told = error["msg"]
    if bounds is not None:
        told = f"it must be {bounds}" if error["type"] in BEYOND else f"{told}; it must be {bounds}"
    return f"setting {name!r}: {told} (got {shown(got)})"


def _constraints(said: Any) -> Iterator[Any]:
    """What is said about a field or a type, at any depth: one that may be None says it further inside."""
    if isinstance(said, FieldInfo):
        yield from said.metadata
        yield from _constraints(said.annotation)
        return
    for inner in get_args(said):
        yield inner
        yield from _constraints(inner)


def _names(error: Any) -> tuple[str, ...]:
    """The settings an error is about: one, or several that do not go together."""
    return error["ctx"]["names"] if error["type"] == "together" else (str(error["loc"][0]),)
