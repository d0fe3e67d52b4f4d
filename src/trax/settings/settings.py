"""The settings: each with its default, and its meaning below; the same as keyword arguments."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterable, Mapping  # noqa: TC003 - a test resolves the types
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias, TypedDict, get_args

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from trax.clock import TextDuration, format_duration
from trax.errors import InvalidSetting, UnknownSetting, did_you_mean, format_value, join_problems
from trax.masking import HIDDEN, is_secret_name
from trax.settings.kinds import (
    DAY,
    HOUR,
    SECOND,
    AtLeastOne,
    AuditPeriod,
    Boost,
    Bounds,
    Delay,
    Duration,
    Effective,
    GracePeriod,
    HeartbeatInterval,
    Labels,
    LimitCount,
    LogThreshold,
    LoopInterval,
    Multiplier,
    Names,
    NonNegative,
    SettingOrigin,
    Slots,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


PREFIX = "TRAX_"
CERTAIN = 0.85
"""How similar a variable must be to the name of a setting to count as misspelled, from 0 to 1."""
OUT_OF_BOUNDS = ("greater_than", "greater_than_equal", "less_than_equal")


OTHER_NAMES: Final = {"default_max_retries": "default_max_attempts"}


class Settings(BaseModel):
    """The settings of an app. An omitted value takes its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    # the loops
    manifest_manager_enabled: bool = True
    """Whether due manifests are written to the work queue."""
    job_dispatcher_enabled: bool = True
    """Whether queued entries are dispatched; when off, they accumulate."""
    manifest_manager_polling_interval: LoopInterval = timedelta(seconds=5)
    """The longest wait between two cycles of the manifest manager."""
    job_dispatcher_polling_interval: LoopInterval = timedelta(seconds=2)
    """The longest wait between two cycles of the job dispatcher."""

    # dispatching
    max_active_jobs: LimitCount | None = 10
    """The maximum number of runs pending or in progress at once, on all servers together; None: no limit."""
    max_queued_jobs_per_cycle: AtLeastOne | None = 100
    """The share of one group in a dispatch cycle, while entries of other groups wait; None: no limit."""
    max_work_queue_entries_per_cycle: AtLeastOne | None = 200
    """The maximum number of entries that one manager cycle writes, shared fairly by the groups; None: all."""
    max_concurrent_dispatch: Slots = 1
    """The maximum number of concurrent calls of each submitter, per server."""
    max_dispatch_attempts: NonNegative = 5
    """How often a hand-over may fail before the job is given up; 0: it is not retried."""
    hand_over_timeout: Annotated[TextDuration, Field(gt=timedelta(0), le=DAY)] = timedelta(seconds=30)
    """How long a submitter may take to accept runs; after that the hand-over has failed."""
    dependent_priority_boost: Boost = 16
    """Added to the priority of a run that depends on another manifest."""

    # failures and retries
    default_max_attempts: Annotated[LimitCount, Effective.NEXT_SEEDING] = 3
    """How many failures make a dead letter, if neither the manifest nor the train sets it."""
    default_retry_delay: Delay = timedelta(minutes=5)
    """The wait before the first retry."""
    retry_backoff_multiplier: Multiplier = 2.0
    """The factor by which the wait grows with each further retry; 1.0: it stays the same."""
    max_retry_delay: Delay = timedelta(hours=1)
    """The longest wait before a retry."""
    default_job_timeout: Duration = timedelta(minutes=20)
    """How long a run may take before it is asked to stop, if it has no timeout of its own."""
    timeout_counts_as_failure: bool = True
    """Whether a run that exceeded its timeout has failed, and is retried; if not, it was cancelled."""
    failure_counting: Literal["consecutive", "lifetime"] = "consecutive"
    """Which failures make a dead letter: those in a row, or all since its last dead letter was resolved."""
    stale_pending_timeout: Duration = timedelta(minutes=20)
    """After this time without a start a run is handed over again, up to `max_dispatch_attempts` times."""
    unknown_train_timeout: Duration | None = None
    """How long an entry waits for a worker that accepts its train; None: `stale_pending_timeout`."""
    stale_in_progress_timeout: Duration = timedelta(minutes=60)
    """After this time a run in progress that no worker holds has failed."""
    default_misfire_policy: Annotated[Literal["fire_once_now", "do_nothing"], Effective.NEXT_SEEDING] = (
        "fire_once_now"
    )
    """The policy for missed occurrences, if the manifest does not set one."""
    default_misfire_threshold: Delay = timedelta(seconds=60)
    """How late an occurrence may be without counting as missed."""

    # startup
    recover_stuck_jobs_on_startup: Annotated[bool, Effective.NEXT_START] = True
    """Whether a server fails the runs of lost workers when it starts."""
    prune_orphaned_manifests: Annotated[bool, Effective.NEXT_START] = True
    """Whether manifests that code no longer declares are retired."""
    skip_migrations: Annotated[bool, Effective.FIXED] = False
    """Whether the tables are only checked, and not migrated, when the database is opened."""

    # the database
    database_connect_timeout: Annotated[TextDuration, Effective.FIXED, Field(ge=2 * SECOND, le=HOUR)] = (
        timedelta(seconds=10)
    )
    """How long connecting to PostgreSQL may take, for each IP address of the host."""
    database_network_timeout: Annotated[TextDuration, Effective.FIXED, Field(ge=SECOND, le=HOUR)] = timedelta(
        seconds=20
    )
    """How long PostgreSQL's host may not respond before a connection counts as lost."""
    database_statement_timeout: Annotated[
        Annotated[TextDuration, Field(ge=SECOND, le=DAY)] | None, Effective.FIXED
    ] = timedelta(seconds=60)
    """How long a PostgreSQL statement may take, except in migrations, startup and cleanup; None: no limit."""

    # notifications between processes
    notifications: Annotated[bool, Effective.FIXED] = True
    """Whether processes notify each other through PostgreSQL; when off, they only poll for changes."""
    listen_url: Annotated[str | None, Effective.FIXED, Field(repr=False)] = None
    """The URL for LISTEN if the database's own URL goes through a pooler; it may contain a password."""

    # the workers
    local_worker_count: Slots | None = None
    """The most runs that one process executes at once; None: 100, or 32 if all trains are synchronous."""
    local_polling_interval: LoopInterval = timedelta(seconds=5)
    """The longest wait of a worker before it tries again to claim runs."""
    heartbeat_interval: HeartbeatInterval = timedelta(seconds=5)
    """How often a worker sends a heartbeat."""
    worker_lost_after: Annotated[TextDuration, Field(ge=SECOND / 5, le=DAY)] = timedelta(seconds=20)
    """After this time without a heartbeat a worker's runs fail; longer than `heartbeat_interval`."""
    shutdown_timeout: GracePeriod = timedelta(seconds=30)
    """How long a stopping worker waits for its runs to end before it returns them to the queue."""

    max_concurrent_runs: AtLeastOne | None = None
    """The maximum number of concurrent `app.run` calls in one process; the others wait. None: no limit."""

    # the host
    host_environment: Annotated[Word | None, Effective.FIXED] = None
    """The kind of environment this process runs in; None: detected."""
    host_instance_id: Annotated[Word | None, Effective.FIXED] = None
    """The id of this instance in its environment; None: detected."""
    host_labels: Annotated[Labels, Effective.FIXED] = {}
    """Your own labels for this process, shown with its worker: `zone=b,team=etl`."""

    app_version: Annotated[Word | None, Effective.FIXED] = None
    """The version of your own code in this process, shown with its worker."""

    # the records
    save_inputs: bool = True
    """Whether the record of a run keeps its input."""
    save_outputs: bool = True
    """Whether the record of a run keeps its output."""
    max_input_bytes: LimitCount | None = 262_144
    """The maximum size of an input as JSON, to be queued or scheduled; None: no limit."""
    max_parameter_bytes: LimitCount | None = 262_144
    """The maximum size of a saved input or output; a larger one is replaced by a note; None: no limit."""
    capture_logs: Annotated[LogThreshold | None, Effective.NEXT_START] = "information"
    """The lowest level of log lines that are kept with the record of their run; None: no lines are kept."""
    capture_logs_except: Names = ()
    """Loggers whose lines are not kept; `*` matches anything."""
    junction_progress: bool = True
    """Whether the record of a run shows the current junction, and keeps the duration of each."""
    auto_purge_dead_letters: bool = True
    """Whether resolved dead letters are deleted after `dead_letter_retention_period`."""
    dead_letter_retention_period: Duration = timedelta(days=30)
    """How long resolved dead letters are kept."""
    audit_retention_period: AuditPeriod | None = timedelta(days=365)
    """How long audit entries are kept; None: forever."""
    audit_retention_floor: Annotated[AuditPeriod, Effective.FIXED] = timedelta(days=30)
    """The shortest `audit_retention_period` that operators can set."""
    metadata_cleanup_enabled: bool = False
    """Whether old records of runs are deleted."""
    metadata_cleanup_interval: LoopInterval = timedelta(minutes=1)
    """How often old records are deleted."""
    metadata_cleanup_retention: Duration = timedelta(minutes=30)
    """How long ago a run must have ended for its record to be deleted."""
    metadata_cleanup_batch_size: AtLeastOne | None = 1000
    """How many records are deleted in one transaction; None: all."""
    metadata_cleanup_trains: Names = ()
    """The trains whose records are deleted, in addition to the administrative trains."""

    @classmethod
    def load(cls, arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Self:
        """The settings from keyword arguments, overridden by environment variables."""
        environment = os.environ if environment is None else environment
        cls._check_variables(environment)
        return cls.from_values({**cls.expand_shorthand(arguments), **cls._from_environment(environment)})

    def with_changes(self, changes: Mapping[str, Any]) -> Self:
        """A copy with some values replaced and all values validated."""
        return self.from_values({**self.model_dump(), **self.expand_shorthand(changes)})

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as refused:
            errors = refused.errors()
            reasons = {name: _format_error(error) for error in errors for name in _setting_names(error)}
            is_unknown = any(error["type"] == "extra_forbidden" for error in errors)
            kind = UnknownSetting if is_unknown else InvalidSetting
            raise kind(join_problems([_format_error(error) for error in errors]), reasons) from None

    def with_overrides(self, rows: Mapping[str, Any]) -> tuple[Self, dict[str, str]]:
        """A copy with the operators' values, and the values that were ignored, with the reasons.

        A row may have been written by another version of this code: an invalid one must neither stop the
        server nor affect the other rows.
        """
        fixed = [name for name in rows if name in Settings.model_fields and self.is_fixed(name)]
        refused = dict.fromkeys(fixed, f"it is {Effective.FIXED}")
        valid = {name: value for name, value in rows.items() if name not in refused}
        while True:
            try:
                return type(self).model_validate({**self.model_dump(), **valid}), refused
            except ValidationError as error:
                invalid = {
                    name: _format_error(each)
                    for each in error.errors()
                    for name in _setting_names(each)
                    if name in valid
                }
                if not invalid:
                    raise  # the error is not in the rows
            refused |= invalid
            valid = {name: value for name, value in valid.items() if name not in invalid}

    @classmethod
    def bounds(cls, name: str) -> Bounds | None:
        """The bounds of a setting that is a number or a duration; None for others."""
        constraints = list(_constraints(cls.model_fields[name])) if name in cls.model_fields else []
        least = [
            each.ge if isinstance(each, Ge) else each.gt for each in constraints if isinstance(each, Ge | Gt)
        ]
        most = [each.le for each in constraints if isinstance(each, Le)]
        is_above = any(isinstance(each, Gt) for each in constraints)
        return Bounds(least[0], most[0], is_above=is_above) if least and most else None

    @classmethod
    def description(cls, name: str) -> str:
        """The text below a setting."""
        return _descriptions()[name]

    def to_json_values(self, names: Iterable[str]) -> dict[str, Any]:
        """These values as JSON data, as they are stored."""
        return self.model_dump(mode="json", include=set(names))

    @property
    def default_max_retries(self) -> int:
        """Another name of `default_max_attempts`."""
        return self.default_max_attempts

    @classmethod
    def effective(cls, name: str) -> Effective:
        """When running servers apply a change of this setting."""
        marks = [mark for mark in cls.model_fields[name].metadata if isinstance(mark, Effective)]
        return marks[0] if marks else Effective.NEXT_CYCLE

    @classmethod
    def is_fixed(cls, name: str) -> bool:
        return cls.effective(name) is Effective.FIXED

    @classmethod
    def origins(
        cls, arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> dict[str, SettingOrigin]:
        """Where the value of each setting comes from, without operators' rows."""
        environment = os.environ if environment is None else environment
        return {
            **dict.fromkeys(cls.model_fields, SettingOrigin.DEFAULT),
            **dict.fromkeys(cls.expand_shorthand(arguments), SettingOrigin.CODE),
            **dict.fromkeys(cls._from_environment(environment), SettingOrigin.ENVIRONMENT),
        }

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.worker_lost_after <= self.heartbeat_interval:
            raise PydanticCustomError(
                "together",
                "worker_lost_after ({lost}) must be longer than heartbeat_interval ({beat}): "
                "otherwise every worker would count as lost between two heartbeats",
                {
                    "lost": format_duration(self.worker_lost_after),
                    "beat": format_duration(self.heartbeat_interval),
                    "names": ("heartbeat_interval", "worker_lost_after"),
                },
            )
        if (
            self.audit_retention_period is not None
            and self.audit_retention_period < self.audit_retention_floor
        ):
            raise PydanticCustomError(
                "together",
                "audit_retention_period ({period}) must not be shorter than audit_retention_floor ({floor}), "
                "which only code and environment can set",
                {
                    "period": format_duration(self.audit_retention_period),
                    "floor": format_duration(self.audit_retention_floor),
                    "names": ("audit_retention_period",),
                },
            )
        return self

    @classmethod
    def expand_shorthand(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Replace other names of settings by their own.

        `polling_interval` sets both loops; the setting of one loop has precedence.
        """
        values = {OTHER_NAMES.get(name, name): value for name, value in arguments.items()}
        if "polling_interval" in values:
            both = values.pop("polling_interval")
            values.setdefault("manifest_manager_polling_interval", both)
            values.setdefault("job_dispatcher_polling_interval", both)
        return values

    @classmethod
    def _check_variables(cls, environment: Mapping[str, str]) -> None:
        """Refuse a variable that is nearly the name of a setting; others may belong to other programs."""
        known = {PREFIX + name.upper() for name in (*OTHER_NAMES, *cls.model_fields)}
        others = [each for each in environment if each.startswith(PREFIX) and each not in known]
        for variable in others:
            if hint := did_you_mean(variable, known, cutoff=CERTAIN):
                problem = f"there is no setting ${variable}{hint}"
                raise UnknownSetting(problem, {variable.removeprefix(PREFIX).lower(): problem})

    @classmethod
    def _from_environment(cls, environment: Mapping[str, str]) -> dict[str, Any]:
        names = {name: PREFIX + name.upper() for name in (*OTHER_NAMES, *cls.model_fields)}
        return {
            OTHER_NAMES.get(name, name): None
            if environment[variable].lower() in {"", "none"}
            else environment[variable]
            for name, variable in names.items()
            if variable in environment
        }


@cache
def _descriptions() -> dict[str, str]:
    """The text below each setting, read from the source on first use: most processes never need it."""
    (definition,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101
    texts: dict[str, str] = {}
    for statement, below in pairwise(definition.body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
            case _:
                pass
    return texts


def _format_error(error: Any) -> str:
    if error["type"] == "together":
        return error["msg"]
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"there is no setting {format_value(name)}{did_you_mean(name, Settings.model_fields)}"
    got = HIDDEN if is_secret_name(name) else error["input"]
    bounds = Settings.bounds(str(error["loc"][0]))
    text = error["msg"]
    if bounds is not None:
        text = f"it must be {bounds}" if error["type"] in OUT_OF_BOUNDS else f"{text}; it must be {bounds}"
    return f"setting {format_value(name)}: {text} (got {format_value(got)})"


def _constraints(field_or_type: Any) -> Iterator[Any]:
    """The constraints of a field or a type, at any depth: those of an optional type are nested."""
    if isinstance(field_or_type, FieldInfo):
        yield from field_or_type.metadata
        yield from _constraints(field_or_type.annotation)
        return
    for inner in get_args(field_or_type):
        yield inner
        yield from _constraints(inner)


def _setting_names(error: Any) -> tuple[str, ...]:
    """The settings that an error is about: one, or several whose combination is invalid."""
    return error["ctx"]["names"] if error["type"] == "together" else (str(error["loc"][0]),)


DurationValue: TypeAlias = timedelta | float | str
"""A number is in seconds; text as `parse_duration` reads it: `90s`, `25 min`, `PT20M`."""


class SettingKeywords(TypedDict, total=False):
    """Settings of an app; an omitted one takes its default."""

    polling_interval: DurationValue
    """Sets both polling intervals of the scheduler; the setting of one loop has precedence."""
    manifest_manager_enabled: bool
    job_dispatcher_enabled: bool
    manifest_manager_polling_interval: DurationValue
    job_dispatcher_polling_interval: DurationValue
    max_active_jobs: int | None
    max_queued_jobs_per_cycle: int | None
    max_work_queue_entries_per_cycle: int | None
    max_concurrent_dispatch: int
    max_dispatch_attempts: int
    hand_over_timeout: DurationValue
    dependent_priority_boost: int
    default_max_attempts: int
    default_max_retries: int
    """Another name of `default_max_attempts`."""
    default_retry_delay: DurationValue
    retry_backoff_multiplier: float
    max_retry_delay: DurationValue
    default_job_timeout: DurationValue
    timeout_counts_as_failure: bool
    failure_counting: Literal["consecutive", "lifetime"]
    stale_pending_timeout: DurationValue
    unknown_train_timeout: DurationValue | None
    stale_in_progress_timeout: DurationValue
    default_misfire_policy: Literal["fire_once_now", "do_nothing"]
    default_misfire_threshold: DurationValue
    recover_stuck_jobs_on_startup: bool
    prune_orphaned_manifests: bool
    skip_migrations: bool
    database_connect_timeout: DurationValue
    database_network_timeout: DurationValue
    database_statement_timeout: DurationValue | None
    notifications: bool
    listen_url: str | None
    local_worker_count: int | None
    local_polling_interval: DurationValue
    heartbeat_interval: DurationValue
    worker_lost_after: DurationValue
    shutdown_timeout: DurationValue
    max_concurrent_runs: int | None
    host_environment: str | None
    host_instance_id: str | None
    host_labels: Mapping[str, str] | str
    app_version: str | None
    save_inputs: bool
    save_outputs: bool
    max_input_bytes: int | None
    max_parameter_bytes: int | None
    capture_logs: Literal["trace", "debug", "info", "information", "warning", "error", "critical"] | None
    capture_logs_except: Iterable[str]
    junction_progress: bool
    auto_purge_dead_letters: bool
    dead_letter_retention_period: DurationValue
    audit_retention_period: DurationValue | None
    audit_retention_floor: DurationValue
    metadata_cleanup_enabled: bool
    metadata_cleanup_interval: DurationValue
    metadata_cleanup_retention: DurationValue
    metadata_cleanup_batch_size: int | None
    metadata_cleanup_trains: Iterable[str]
