"""The settings in force: what code and environment say, and what operators have edited on top."""

from __future__ import annotations

import json
import logging
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from trax.bounds import load_json
from trax.errors import InvalidSetting, did_you_mean
from trax.settings import PREFIX, SettingOrigin, Settings
from trax.store import settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trax.store import Connection

logger = logging.getLogger(__name__)


class LiveSettings:
    """Gives the settings of this moment. Every cycle refreshes it from the rows, in its own transaction.

    Any thread may read or refresh. Two that refresh at once may leave the older of two edits in place, until
    the next cycle reads again.
    """

    def __init__(self, base: Settings, origins: Mapping[str, SettingOrigin]) -> None:
        self.now = base
        """What counts, as far as this process knows."""
        self._base = base
        self._origins = origins
        self._rows: dict[str, str] = {}
        self._lock = Lock()

    @classmethod
    def load(cls, given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Self:
        return cls(Settings.load(given, environment), Settings.origins(given, environment))

    def refresh(self, connection: Connection) -> Settings:
        """Read what operators have edited; gives the settings that count from now on."""
        return self.accept(settings.stored(connection))

    def accept(self, rows: dict[str, str]) -> Settings:
        """Let these rows count. One that cannot work is left out, and said so once."""
        with self._lock:  # settings and the rows they were made of must stay a pair
            if rows != self._rows:
                self.now, refused = self._base.overridden(_values(rows))
                self._rows = rows
                for name, reason in refused.items():
                    extra = {"setting": name}
                    logger.warning("the stored setting %r is ignored: %s", name, reason, extra=extra)
            return self.now

    def changed(self, rows: Mapping[str, str], changes: Mapping[str, Any]) -> dict[str, str]:
        """The rows to write for these changes, if the whole still works with them; else it raises."""
        changes = Settings.with_shorthand(changes)
        refused = {name: why for name in changes if (why := _refusal(name))}
        if refused:
            raise InvalidSetting("; ".join(refused.values()), refused)
        in_force, _ = self._base.overridden(_values(rows))
        spelled = in_force.updated(changes).spelled(changes)
        return {name: json.dumps(spelled[name]) for name in changes}

    def without(self, rows: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
        """The rows that remain when these are gone (none given: all are), if they work without them."""
        gone = Settings.with_shorthand(dict.fromkeys(names)) or rows
        for name in gone:
            if name not in rows:
                check_known(name)
        remaining = {name: value for name, value in rows.items() if name not in gone}
        _, refused_before = self._base.overridden(_values(rows))
        _, refused = self._base.overridden(_values(remaining))
        troubles = [reason for name, reason in refused.items() if name not in refused_before]
        if troubles:
            raise InvalidSetting("; ".join(dict.fromkeys(troubles)))
        return remaining

    def spelled(self, rows: Mapping[str, str], names: Iterable[str]) -> dict[str, Any]:
        """What these settings would be with these rows, as plain data."""
        in_force, _ = self._base.overridden(_values(rows))
        return in_force.spelled(name for name in names if name in Settings.model_fields)

    def published(self) -> str:
        """What code and environment say, as JSON, for whoever asks about this server without its code."""
        return json.dumps(self._base.spelled(Settings.model_fields.keys() - {"listen_url"}))

    def as_published(self, text: str) -> Settings:
        """The settings of a server that has published its own, with what operators have edited on top."""
        try:
            base = Settings.checked(json.loads(text))
        except (InvalidSetting, ValueError):  # another release may know other settings
            return self.now
        return base.overridden(_values(self._rows))[0]

    def origins(self) -> dict[str, SettingOrigin]:
        """Who says what each setting is."""
        _, refused = self._base.overridden(_values(self._rows))
        edited = [name for name in self._rows if name not in refused and name in Settings.model_fields]
        return {**self._origins, **dict.fromkeys(edited, SettingOrigin.OPERATOR)}


def check_known(name: str) -> None:
    if name not in Settings.model_fields:
        why = _unknown(name)
        raise InvalidSetting(why, {name: why})


def _unknown(name: str) -> str:
    return f"there is no setting {name!r}{did_you_mean(name, Settings.model_fields)}"


def _refusal(name: str) -> str | None:
    """Why operators cannot edit this, if so."""
    if name not in Settings.model_fields:
        return _unknown(name)
    if not Settings.is_fixed(name):
        return None
    return (
        f"setting {name!r} is read once, when a process starts, and cannot be edited in the database; "
        f"say Trax({name}=…) or set {PREFIX}{name.upper()}, and start again"
    )


def _values(rows: Mapping[str, str]) -> dict[str, Any]:
    return {name: _parsed(value) for name, value in rows.items()}


def _parsed(value: str) -> Any:
    """A row written by hand may not be JSON; as plain text it may still make sense."""
    try:
        return load_json(value)
    except ValueError:
        return value
