"""What can be listed: the filters and columns of each noun, described once.

A filter is a key of a TypedDict, annotated with a `Filter`; its type says how a value is parsed and checked.
The Python resource, the HTTP API, the command and the page are made from it; the search in the store says
which rows it selects.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypedDict, get_args, get_type_hints

from trax.records.states import (  # noqa: TC001 - as above
    DeadLetterStatus,
    LogLevel,
    Origin,
    QueueStatus,
    ScheduleType,
    State,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: its help, and how the page's form shows it. The name and the type come from its key.

    `kind` is str (a name or a text), int (an id), bool, datetime (a moment), or an enum of choices.
    """

    help: str
    _: KW_ONLY
    option_help: str = ""
    """The help of the option, if that accepts more, such as how long ago."""
    default: Any = None
    negative: str = ""
    """The option that means False, if no value means both."""
    label: str = ""
    placeholder: str = ""
    form_name: str | None = ""
    """The name in the form, by default that of the filter; None: it is not in the form."""
    name: str = ""
    kind: type[Any] = str

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(self.kind) if issubclass(self.kind, StrEnum) else ()

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ").capitalize()

    @property
    def field(self) -> str | None:
        return self.name if self.form_name == "" else self.form_name


@cache
def filters_of(keywords: type[Any]) -> Mapping[str, Filter]:
    """The filters that a TypedDict declares, by name."""
    hints = get_type_hints(keywords, include_extras=True)
    return {name: replace(get_args(hint)[1], name=name, kind=_kind_of(hint)) for name, hint in hints.items()}


def _kind_of(hint: Any) -> type[Any]:
    """The type of a value, such as State for `Annotated[State | str | None, …]`."""
    declared = get_args(hint)[0]
    return next(each for each in get_args(declared) or (declared,) if each is not NoneType)


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column of a list: an attribute of the record, and how the page's table shows it.

    `cell` names a macro of `cells.html`. A column may be left out of the command's table, or without a header
    of the page; one may be shown only `when`, or only `unless`, a filter is on.
    """

    name: str
    header: str = ""
    cell: str = "text"
    style: str = ""
    _: KW_ONLY
    in_command: bool = True
    when: str = ""
    unless: str = ""

    def fits(self, filters: Mapping[str, Any]) -> bool:
        return (not self.when or bool(filters.get(self.when))) and not filters.get(self.unless)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun:
    """A kind of record that can be listed, paged and counted; `name` is the resource of the app.

    Lists by id begin with the newest, unless `is_ascending`. The API leaves long fields out of lists, unless
    it is asked for them or the noun `is_full`.
    """

    name: str
    summary: str
    filters: type[Any]
    columns: tuple[ListColumn, ...]
    is_by_name: bool = False
    is_ascending: bool = False
    is_full: bool = False

    @property
    def filters_by_name(self) -> Mapping[str, Filter]:
        return filters_of(self.filters)

    def command_columns(self, filters: Mapping[str, Any]) -> list[ListColumn]:
        return [column for column in self.columns if column.in_command and column.fits(filters)]

    def page_columns(self, filters: Mapping[str, Any]) -> list[ListColumn]:
        return [column for column in self.columns if column.header and column.fits(filters)]


class PageById(TypedDict, total=False):
    """Which part of a list by id: `limit` items (50 by default) with ids below `before` or above `after`.

    With `brief`, inputs, outputs, junctions and stack traces are omitted, and long texts cut.
    """

    before: int | None
    after: int | None
    limit: int
    brief: bool


class PageByName(TypedDict, total=False):
    """Which part of a list by name: `limit` items (50 by default) before or after a name.

    With `brief`, inputs are omitted.
    """

    before: str | None
    after: str | None
    limit: int
    brief: bool


Train: TypeAlias = Annotated[str | None, Filter("Only this train.")]
Manifest: TypeAlias = Annotated[str | None, Filter("Only this manifest, by its external id.")]
Group: TypeAlias = Annotated[str | None, Filter("Only this group.")]
SINCE: Final = Filter(
    "Created at or after this time.",
    option_help="Created at or after this time (UTC if no zone is given), or at most this long ago: 2h.",
    form_name=None,
)
UNTIL: Final = Filter(
    "Created before this time.",
    option_help="Created before this time, or longer ago than this.",
    form_name=None,
)
Since: TypeAlias = Annotated[datetime | None, SINCE]
Until: TypeAlias = Annotated[datetime | None, UNTIL]


class RunFilter(TypedDict, total=False):
    """Filters for executions; an omitted one matches all.

    `since` (inclusive) and `until` (exclusive) filter by creation time; `external_id` may be a prefix. Runs
    of administrative trains are left out, unless `admin` is true or `train` names one.
    """

    state: Annotated[State | str | None, Filter("Only this state.")]
    train: Train
    manifest: Manifest
    group: Group
    parent_id: Annotated[int | None, Filter("Only runs that this run started.", form_name=None)]
    external_id: Annotated[
        str | None, Filter("The external id, or its beginning.", placeholder="or its beginning")
    ]
    since: Since
    until: Until
    admin: Annotated[bool, Filter("Include Trax's own administrative trains.", default=False, form_name=None)]


class ExecutionKeywords(PageById, RunFilter, total=False):
    """Keywords of `app.executions.list` and `page`."""


class EntryFilter(TypedDict, total=False):
    """Filters for entries of the work queue; an omitted one matches all."""

    status: Annotated[QueueStatus | str | None, Filter("Only this status.")]
    train: Train
    manifest: Manifest
    group: Group
    origin: Annotated[Origin | str | None, Filter("Only entries of this origin.")]
    external_id: Annotated[str | None, Filter("The external id.")]


class EntryKeywords(PageById, EntryFilter, total=False):
    """Keywords of `app.work_queue.list` and `page`."""


class LogFilter(TypedDict, total=False):
    """Filters for log lines: of this level or higher, with this text in the message, of one run."""

    level: Annotated[LogLevel | str | None, Filter("This level or higher.", label="Minimum level")]
    text: Annotated[
        str | None, Filter("Only messages that contain this text.", placeholder="part of a message")
    ]
    metadata_id: Annotated[
        int | None, Filter("Only lines of this execution.", label="Execution", form_name="execution")
    ]


class LogKeywords(PageById, LogFilter, total=False):
    """Keywords of `app.logs.list` and `page`."""


class ManifestFilter(TypedDict, total=False):
    """Filters for manifests; an omitted one matches all.

    `text` is part of the external id; `depends_on` is the parent's. Retired manifests are omitted, unless
    `retired` is True (only those) or None (all).
    """

    group: Group
    train: Train
    enabled: Annotated[
        bool | None, Filter("Only enabled, or only disabled ones.", negative="--disabled", label="State")
    ]
    schedule_type: Annotated[ScheduleType | str | None, Filter("Only this type.", label="Schedule")]
    depends_on: Annotated[str | None, Filter("Only dependents of this manifest.")]
    text: Annotated[str | None, Filter("Only external ids that contain this text.", label="External id")]
    retired: Annotated[bool | None, Filter("List retired manifests instead.", default=False, form_name=None)]


class ManifestKeywords(PageByName, ManifestFilter, total=False):
    """Keywords of `app.manifests.list` and `page`."""


class LetterFilter(TypedDict, total=False):
    """Filters for dead letters; an omitted one matches all. A fingerprint is one kind of failure."""

    status: Annotated[DeadLetterStatus | str | None, Filter("Only this status.", placeholder="all")]
    manifest: Manifest
    fingerprint: Annotated[
        str | None, Filter("All dead letters of this failure; `groups` lists fingerprints.")
    ]


class DeadLetterKeywords(PageById, LetterFilter, total=False):
    """Keywords of `app.dead_letters.list` and `page`."""


class SessionFilter(TypedDict, total=False):
    """Filters for dashboard sessions; expired ones are left out."""

    user: Annotated[str | None, Filter("Only sessions of this user.")]


class SessionKeywords(PageById, SessionFilter, total=False):
    """Keywords of `app.sessions.list` and `page`."""


class AuditFilter(TypedDict, total=False):
    """Filters for audit entries; an omitted one matches all.

    `action` is a noun and a verb, such as "groups.update"; `target` is the id or name of what changed.
    """

    actor: Annotated[str | None, Filter("Who made the change.")]
    action: Annotated[str | None, Filter("An action, such as groups.update.")]
    noun: Annotated[str | None, Filter("A kind of record, such as group.")]
    target: Annotated[str | None, Filter("An id or name that was changed.", placeholder="an id or a name")]
    since: Since
    until: Until


class AuditKeywords(PageById, AuditFilter, total=False):
    """Keywords of `app.audit.list` and `page`."""


class NoFilter(TypedDict, total=False):
    """Groups and workers have no filters."""


EXECUTIONS: Final = Noun(
    name="executions",
    summary="List executions, newest first.",
    filters=RunFilter,
    columns=(
        ListColumn("id", "Id", "execution", "tight"),
        ListColumn("train", "Train", "train"),
        ListColumn("state", "State", "chip"),
        ListColumn("manifest", "Manifest", "manifest", "wide"),
        ListColumn("attempt", "Attempt", "text", "number wide"),
        ListColumn("created_at", "Created", "moment"),
        ListColumn("ended_at", "Duration", "run_duration", "number"),
        ListColumn("failure_reason", "Progress or failure", "run_progress", "wide"),
        ListColumn("host", "Host", "text", "wide", in_command=False),
    ),
)
ENTRIES: Final = Noun(
    name="work_queue",
    summary="List queue entries, newest first.",
    filters=EntryFilter,
    columns=(
        ListColumn("id", "Id", "entry", "tight"),
        ListColumn("train", "Train", "train"),
        ListColumn("status", "Status", "entry_status"),
        ListColumn("origin", "Origin", "words", "wide"),
        ListColumn("priority", "Priority", "text", "number"),
        ListColumn("manifest", "Manifest", "manifest"),
        ListColumn("group", "Group", "group", "wide"),
        ListColumn("created_at", "Created", "moment"),
        ListColumn("scheduled_at", "Not before", "moment", "wide"),
        ListColumn("dispatched_at", "Dispatched", "moment", in_command=False),
        ListColumn("metadata_id", "Execution", "execution", "tight", in_command=False),
    ),
)
LOGS: Final = Noun(
    name="logs",
    summary="List log lines of all executions, newest first.",
    filters=LogFilter,
    columns=(
        ListColumn("id"),
        ListColumn("metadata_id", "Execution", "execution", "tight"),
        ListColumn("created_at", "At", "moment", "tight"),
        ListColumn("level", "Level", "level", "tight"),
        ListColumn("message", "Message", "message", "message"),
        ListColumn("logger", "Logger", "text", "wide", in_command=False),
    ),
    is_full=True,
)
MANIFESTS: Final = Noun(
    name="manifests",
    summary="List manifests, sorted by external id.",
    filters=ManifestFilter,
    columns=(
        ListColumn("external_id", "Manifest", "manifest", "strong"),
        ListColumn("train", "Train", "train"),
        ListColumn("group", "Group", "group", "wide"),
        ListColumn("schedule", "Schedule", "schedule"),
        ListColumn("enabled", "State", "manifest_state"),
        ListColumn("priority", "Priority", "text", "number wide", in_command=False),
        ListColumn("failure_count", "Failures", "failures", "number wide"),
        ListColumn("last_successful_run", "Last success", "moment_or_never", in_command=False),
        ListColumn("next_due_at", "Next due", "moment", unless="retired"),
        ListColumn("retired_at", "Retired", "moment", when="retired"),
    ),
    is_by_name=True,
    is_ascending=True,
)
GROUPS: Final = Noun(
    name="groups",
    summary="List groups, sorted by name.",
    filters=NoFilter,
    columns=(
        ListColumn("name"),
        ListColumn("priority"),
        ListColumn("max_active_jobs"),
        ListColumn("enabled"),
    ),
    is_by_name=True,
    is_ascending=True,
)
DEAD_LETTERS: Final = Noun(
    name="dead_letters",
    summary="List dead letters, newest first.",
    filters=LetterFilter,
    columns=(
        ListColumn("id", "Id", "dead_letter", "tight"),
        ListColumn("train", "Train", "train"),
        ListColumn("manifest", "Manifest", "manifest"),
        ListColumn("status", "Status", "chip"),
        ListColumn("retry_count", "Failures", "text", "number wide"),
        ListColumn("dead_lettered_at", "Since", "moment"),
        ListColumn("reason", "Reason", "failure"),
        ListColumn("resolved_at", "Resolved", "moment", "wide", in_command=False),
        ListColumn("note", "Note", "cut", "wide", in_command=False),
    ),
)
WORKERS: Final = Noun(
    name="workers",
    summary="List workers, sorted by id. One whose heartbeat is late is lost.",
    filters=NoFilter,
    columns=(
        *(ListColumn(f"worker.{name}") for name in ("id", "host", "pid", "app", "kind", "concurrency")),
        *(ListColumn(name) for name in ("running", "worker.heartbeat_at", "is_lost")),
    ),
    is_ascending=True,
    is_full=True,
)
SESSIONS: Final = Noun(
    name="sessions",
    summary="List dashboard sessions, newest first.",
    filters=SessionFilter,
    columns=(
        ListColumn("id", "Id", "text", "tight"),
        ListColumn("user", "User", "user"),
        ListColumn("role", "Role"),
        ListColumn("means", "By", "text", "wide"),
        ListColumn("address", "Address"),
        ListColumn("user_agent", "Browser", "cut", "wide", in_command=False),
        ListColumn("created_at", "Signed in", "moment"),
        ListColumn("last_seen_at", "Last seen", "moment"),
        ListColumn("expires_at", "Expires", "moment", "wide"),
    ),
)
AUDIT: Final = Noun(
    name="audit",
    summary="List audit entries, newest first.",
    filters=AuditFilter,
    columns=(
        ListColumn("id"),
        ListColumn("at", "When", "moment", "tight"),
        ListColumn("actor", "Actor", "actor"),
        ListColumn("via"),
        ListColumn("action", "Action", "action"),
        ListColumn("ids", "Target", "targets"),
        ListColumn("count"),
        ListColumn("before", "Before → after", "changes", in_command=False),
        ListColumn("reason", "Reason", "text", "wide"),
        ListColumn("undone_by"),
    ),
    is_full=True,
)
NOUNS: Final = (EXECUTIONS, ENTRIES, LOGS, MANIFESTS, GROUPS, DEAD_LETTERS, WORKERS, SESSIONS, AUDIT)
