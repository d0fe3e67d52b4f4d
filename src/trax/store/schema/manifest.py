"""Tables `manifest` (scheduled trains) and `manifest_group` (shared limits)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, Float, Integer, SmallInteger, false, true

from trax.records.states import ManifestOrigin, MisfirePolicy, ScheduleType
from trax.store.schema.define import identity
from trax.store.types import BigId, ByteOrderText, JsonText, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer


MOMENTS = (
    "created_at",
    "updated_at",
    "priority_changed_at",
    "apply_priority_at",
    "edited_at",
    "retired_at",
)
BOUND = "max_active_jobs IS NOT NULL OR NOT enabled"
"""Groups that the dispatcher must read; most groups have no limit and are enabled."""

DECLARED = "declared IS NOT NULL"
"""Groups that code declares: `declared` has the apps, each with the options that its code sets."""
AD_HOC = "ad_hoc AND retired_at IS NULL"
"""Groups that exist only because a job was queued in them."""

RESTING = "enabled AND next_due_at IS NULL AND retired_at IS NULL"
"""Manifests that have no next due time; the manager skips them until an event sets one."""
LIVE = "retired_at IS NULL"
RETIRED = "retired_at IS NOT NULL"
"""No longer declared, or deleted by an operator: never fires, and keeps its history."""


def manifest_group(define: Definer) -> Table:
    table = define.table(
        "manifest_group",
        identity(),
        Column("name", ByteOrderText, nullable=False, unique=True),
        Column("priority", SmallInteger, nullable=False, server_default="0"),
        Column("max_active_jobs", Integer),
        Column("enabled", Boolean, nullable=False, server_default=true()),
        Column("created_at", Utc, nullable=False),
        Column("updated_at", Utc, nullable=False),
        Column("priority_changed_at", Utc),
        Column("apply_priority_at", Utc),
        Column("priority_horizon", BigId),
        Column("declared", JsonText),
        Column("edited_at", Utc),
        Column("ad_hoc", Boolean, nullable=False, server_default=false()),
        Column("retired_at", Utc),
        define.check("priority_range", "priority BETWEEN 0 AND 31"),
        define.check("max_active_jobs_range", "max_active_jobs >= 0"),
        define.names_within("name"),
        define.check("priority_has_change", "apply_priority_at IS NULL OR priority_changed_at IS NOT NULL"),
        define.moments_within(*MOMENTS),
    )
    define.index("manifest_group_bound_idx", table.c.id, where=BOUND)
    define.index("manifest_group_apply_idx", table.c.apply_priority_at, where="apply_priority_at IS NOT NULL")
    define.index("manifest_group_declared_idx", table.c.id, where=DECLARED)
    define.index("manifest_group_ad_hoc_idx", table.c.id, where=AD_HOC)
    return table


def manifest(define: Definer) -> Table:
    table = define.table(
        "manifest",
        identity(),
        Column("external_id", ByteOrderText, nullable=False, unique=True),
        Column("train", ByteOrderText, nullable=False),
        Column("input", JsonText),
        Column("group_id", BigId, define.foreign_key("manifest_group"), nullable=False),
        Column("enabled", Boolean, nullable=False, server_default=true()),
        Column("priority", SmallInteger, nullable=False, server_default="0"),
        Column("origin", ByteOrderText, nullable=False),
        Column("batch", ByteOrderText),
        Column("app", ByteOrderText, nullable=False, server_default="default"),
        Column("schedule_type", ByteOrderText, nullable=False),
        Column("cron_expression", ByteOrderText),
        Column("time_zone", ByteOrderText, nullable=False, server_default="UTC"),
        Column("interval_seconds", Integer),
        Column("anchored", Boolean, nullable=False, server_default=false()),
        Column("scheduled_at", Utc),
        Column("depends_on_id", BigId, define.foreign_key("manifest", ondelete="SET NULL")),
        Column("variance_seconds", Integer),
        Column("exclusions", JsonText),
        Column("misfire_policy", ByteOrderText, nullable=False),
        Column("misfire_limit", Integer),
        Column("misfire_threshold_seconds", Integer),
        Column("max_instances", Integer, nullable=False, server_default="1"),
        Column("max_retries", Integer, nullable=False),
        Column("retry", JsonText),
        Column("timeout_seconds", Float),
        Column("failure_count", Integer, nullable=False, server_default="0"),
        Column("lifetime_failures", Integer, nullable=False, server_default="0"),
        Column("gave_up_reason", ByteOrderText),
        # No foreign key: a run may be deleted while its manifest stays.
        Column("failed_metadata_id", BigId),
        Column("retry_at", Utc),
        Column("attempt_cancelled", Boolean, nullable=False, server_default=false()),
        Column("last_successful_run", Utc),
        Column("last_scheduled_for", Utc),
        Column("next_scheduled_run", Utc),
        Column("plan_after", Utc),
        Column("consumed_parent_success_at", Utc),
        Column("next_due_at", Utc),
        Column("retired_at", Utc),
        Column("declared_enabled", Boolean),
        Column("created_at", Utc, nullable=False),
        Column("updated_at", Utc, nullable=False),
        define.one_of("origin", ManifestOrigin),
        define.one_of("schedule_type", ScheduleType),
        define.one_of("misfire_policy", MisfirePolicy),
        define.check("priority_range", "priority BETWEEN 0 AND 31"),
        define.check("max_retries_range", "max_retries >= 0"),
        define.check("max_instances_range", "max_instances >= 1"),
        define.check("failure_count_range", "failure_count >= 0"),
        define.check("lifetime_failures_range", "lifetime_failures >= 0"),
        define.check("variance_range", "variance_seconds >= 0"),
        define.check("cron_has_expression", "schedule_type <> 'cron' OR cron_expression IS NOT NULL"),
        define.check(
            "interval_has_seconds",
            "schedule_type <> 'interval' OR (interval_seconds IS NOT NULL AND interval_seconds > 0)",
        ),
        define.check("once_has_moment", "schedule_type <> 'once' OR scheduled_at IS NOT NULL"),
        define.check("not_its_own_parent", "depends_on_id <> id"),
    )
    column = table.c
    define.index("manifest_due_idx", column.next_due_at, where="next_due_at IS NOT NULL")
    define.index("manifest_resting_idx", column.id, where=RESTING)
    define.index("manifest_group_idx", column.group_id)
    define.index("manifest_parent_idx", column.depends_on_id, where="depends_on_id IS NOT NULL")
    define.index("manifest_batch_idx", column.batch, where="batch IS NOT NULL")
    define.index("manifest_live_idx", column.external_id, where=LIVE)
    define.index("manifest_retired_idx", column.external_id, where=RETIRED)
    return table
