"""The settings as keyword arguments of `Trax(…)`, for type checkers; `Settings` has their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping  # noqa: TC003 - a test resolves the types
from datetime import timedelta
from typing import Literal, TypeAlias, TypedDict

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
    hand_off_timeout: DurationValue
    dependent_priority_boost: int
    default_max_retries: int
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
    metadata_cleanup_enabled: bool
    metadata_cleanup_interval: DurationValue
    metadata_cleanup_retention: DurationValue
    metadata_cleanup_batch_size: int | None
    metadata_cleanup_trains: Iterable[str]
