"""The settings in force: code and environment, overridden by what operators stored in the database."""

from __future__ import annotations

import json
import logging
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self, cast

from trax.bounds import load_json
from trax.clock import parse_duration
from trax.errors import InvalidSetting, UnknownSetting, did_you_mean, format_value, join_problems
from trax.forks import fork_safe
from trax.settings import OTHER_NAMES, PREFIX, SettingOrigin, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from trax.store import Connection

logger = logging.getLogger(__name__)
GLOBAL_LIMIT: Final = "max_active_jobs"
RETENTION: Final = "dead_letter_retention_period"
RECORDED: Final = frozenset({GLOBAL_LIMIT, RETENTION})
"""Settings whose changes are always recorded in the audit log: `trax verify` judges the history by them."""
EXEMPT_TRAINS: Final = "exempt_trains"
"""Published beside the settings of a server: its trains that are exempt from the limits."""
MAX_EXEMPT_CHARACTERS: Final = 4_000
"""Longer lists of exempt trains are not recorded: an audit entry is bounded."""


class LiveSettings:
    """The current settings. Every cycle refreshes them from the database, in its own transaction.

    Thread-safe. Two concurrent refreshes may leave the older of two edits in place until the next cycle.
    """

    def __init__(self, base: Settings, origins: Mapping[str, SettingOrigin]) -> None:
        self.current = base
        """The current settings, as of the last refresh."""
        self._base = base
        self._origins = origins
        self._rows: dict[str, str] = {}
        self._lock = fork_safe(Lock())
        self.declared: list[tuple[datetime, dict[str, Any]]] = []
        """What code declared and when, if this process dispatches without a row of its own: in tests."""

    @classmethod
    def load(cls, arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Self:
        return cls(Settings.load(arguments, environment), Settings.origins(arguments, environment))

    def refresh(self, connection: Connection) -> Settings:
        """Load the stored settings, and return the settings now in force."""
        from trax.store import settings

        return self.accept(settings.load_edited(connection))

    def accept(self, rows: dict[str, str]) -> Settings:
        """Apply these rows. An invalid one is ignored, with one warning."""
        with self._lock:  # settings and the rows they come from must match
            if rows != self._rows:
                self.current, refused = self._base.with_overrides(_values(rows))
                self._rows = rows
                for name, reason in refused.items():
                    extra = {"setting": name}
                    logger.warning("setting %r: the stored value is ignored: %s", name, reason, extra=extra)
            return self.current

    def build_rows(self, rows: Mapping[str, str], changes: Mapping[str, Any]) -> dict[str, str]:
        """The rows to write for these changes; raises InvalidSetting if the settings would be invalid."""
        changes = Settings.expand_shorthand(changes)
        refused = {name: why for name in changes if (why := _edit_refusal(name))}
        if refused:
            kind = InvalidSetting if refused.keys() <= Settings.model_fields.keys() else UnknownSetting
            raise kind(join_problems(list(refused.values())), refused)
        in_force, _ = self._base.with_overrides(_values(rows))
        stored = in_force.with_changes(changes).to_json_values(changes)
        return {name: json.dumps(stored[name]) for name in changes}

    def rows_without(self, rows: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
        """The rows left after removing these names (none given: all); raises if the rest is invalid."""
        removed = Settings.expand_shorthand(dict.fromkeys(map(_validate_name, names))) or rows
        for name in removed:
            if name not in rows:
                check_known(name)
        remaining = {name: value for name, value in rows.items() if name not in removed}
        _, refused_before = self._base.with_overrides(_values(rows))
        _, refused = self._base.with_overrides(_values(remaining))
        problems = [reason for name, reason in refused.items() if name not in refused_before]
        if problems:
            raise InvalidSetting("; ".join(dict.fromkeys(problems)))
        return remaining

    def plain_values(self, rows: Mapping[str, str], names: Iterable[str]) -> dict[str, Any]:
        """The values of these settings with these rows applied, as plain data."""
        in_force, _ = self._base.with_overrides(_values(rows))
        return in_force.to_json_values(name for name in names if name in Settings.model_fields)

    @cached_property
    def base_values(self) -> dict[str, Any]:
        """The settings from code and environment, for processes without this server's code."""
        return self._base.to_json_values(Settings.model_fields.keys() - {"listen_url"})

    def publish(self, exempt_trains: Iterable[str]) -> str:
        """These settings as JSON, with the trains that are exempt from the limits."""
        return json.dumps({**self.base_values, EXEMPT_TRAINS: sorted(exempt_trains)})

    def note_declared(self, exempt_trains: Iterable[str], now: datetime) -> None:
        """Keep what this process dispatches by, for `app.verify`."""
        values = {name: self.base_values[name] for name in sorted(RECORDED)}
        self.declared.append((now, {**values, EXEMPT_TRAINS: sorted(exempt_trains)}))

    def load_published(self, text: str) -> Settings:
        """The settings of a server from its published JSON, with the stored settings applied."""
        try:
            values = json.loads(text)
            values.pop(EXEMPT_TRAINS, None)
            base = Settings.from_values(values)
        except (AttributeError, InvalidSetting, ValueError):  # another release may know other settings
            return self.current
        return base.with_overrides(_values(self._rows))[0]

    def origins(self) -> dict[str, SettingOrigin]:
        """Where the value of each setting comes from."""
        _, refused = self._base.with_overrides(_values(self._rows))
        edited = [name for name in self._rows if name not in refused and name in Settings.model_fields]
        return {**self._origins, **dict.fromkeys(edited, SettingOrigin.OPERATOR)}


def record_declared_limit(connection: Connection, *, now: datetime) -> None:
    """Record in the audit log which limits and exempt trains the dispatching servers have from code.

    Only if they differ from the last record. `trax verify` judges the history by it. The caller has inserted
    its own row, under the settings lock: if two servers start together, the second sees the row of the first.
    """
    from trax.engine.actor import DECLARATION
    from trax.records.audit import DECLARED_SETTINGS, NewAudit
    from trax.store import audit, workers
    from trax.store.types import parse_mapping

    published = [parse_mapping(text) for text in workers.load_dispatcher_settings(connection)]
    limits = {limit for each in published if isinstance(limit := each.get(GLOBAL_LIMIT), int | None)}
    ordered = sorted(limits, key=lambda limit: (limit is None, limit))
    after: dict[str, Any] = {GLOBAL_LIMIT: ordered[0] if len(ordered) == 1 else ordered}
    after |= _exempt_trains([each.get(EXEMPT_TRAINS) for each in published])
    after[RETENTION] = _shortest([each.get(RETENTION) for each in published])
    last = audit.load_last(connection, DECLARED_SETTINGS)
    if last is None or last.after != after:
        before = last.after if last else None
        new = NewAudit(
            action=DECLARED_SETTINGS, noun="setting", ids=(GLOBAL_LIMIT,), count=1, before=before, after=after
        )
        audit.add(connection, new, actor=DECLARATION, reason=None, now=now)


def _shortest(durations: Iterable[Any]) -> str | None:
    """The shortest of these durations, which are texts; None if one is not known."""
    try:
        return min(durations, key=parse_duration, default=None)
    except (AttributeError, TypeError, ValueError):
        return None


def _exempt_trains(published: Sequence[Any]) -> dict[str, Any]:
    """The exempt trains of all servers: a list, or one for each server if they differ; {} if not known."""
    lists = [cast("list[str]", each) for each in published if isinstance(each, list)]
    distinct = [each for place, each in enumerate(lists) if each not in lists[:place]]
    if len(lists) < len(published) or len(json.dumps(distinct)) > MAX_EXEMPT_CHARACTERS:
        return {}
    return {EXEMPT_TRAINS: distinct[0] if len(distinct) == 1 else {"servers": sorted(distinct)}}


def check_known(name: str) -> None:
    if _validate_name(name) not in (*Settings.model_fields, *OTHER_NAMES):
        why = _not_found_message(name)
        raise UnknownSetting(why, {name: why})


def _validate_name(name: str) -> str:
    from trax.schedule.validate import NAME

    return NAME("a setting's name", name)


def _not_found_message(name: str) -> str:
    return f"there is no setting {format_value(name)}{did_you_mean(name, Settings.model_fields)}"


def _edit_refusal(name: str) -> str | None:
    """Why operators cannot edit this setting; None if they can."""
    if name not in Settings.model_fields:
        return _not_found_message(name)
    if not Settings.is_fixed(name):
        return None
    return (
        f"setting {name!r} is read once, when a process starts, and cannot be edited in the database; "
        f"pass Trax({name}=…) or set {PREFIX}{name.upper()}, and restart"
    )


def _values(rows: Mapping[str, str]) -> dict[str, Any]:
    return {name: _parse(value) for name, value in rows.items()}


def _parse(value: str) -> Any:
    """Parse as JSON; a row written by hand may be plain text instead."""
    try:
        return load_json(value)
    except ValueError:
        return value
