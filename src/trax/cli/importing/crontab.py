"""The lines of a crontab: of a person, or of the system with the user who runs each."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trax.cli.importing.comparing import COMPARED
from trax.cli.importing.cron_rules import Line, short
from trax.cli.importing.foreign import Command, Foreign
from trax.errors import DefinitionError, did_you_mean
from trax.schedule.cron import cron
from trax.schedule.expression import ALIASES
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator

REBOOT: Final = "@reboot"
FIELDS: Final = 5
ASSIGNMENT: Final = re.compile(r"""^(?:"([^"]+)"|'([^']+)'|([A-Za-z_]\w*))\s*=\s*(.*)$""")
PERCENT: Final = re.compile(r"(?<!\\)%")
ABOUT_CRON: Final = ("CRON_TZ", "MAILTO", "MAILFROM", "RANDOM_DELAY")
"""What is said to cron, and not to the commands."""
IN_GENERAL: Final = (
    "cron forgets what it missed while it was off, and so does this; leave on_misfire out to catch up",
    "cron starts the next run while the last one is still under way; here it waits for it",
    "cron ends no run, however long it takes; here timeout=NO_LIMIT says so, and a shorter one is better",
    "cron mails what a command prints; here it is in the log of the run, and a failure is retried",
)


@dataclass(frozen=True, slots=True)
class Crontab:
    """How to read one: who is named, and which clocks are meant where the text does not say."""

    has_users: bool
    zone: str
    now: datetime
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def read(self, text: str) -> Iterator[Foreign]:
        """Every line that runs something. What is assigned counts for the lines below.

        What cron would not understand is told once all lines are read, every line of it.
        """
        reading, refusals = self, list[str]()
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.strip()
            if not words or words.startswith("#"):
                continue
            if (assigned := ASSIGNMENT.match(words)) is not None:
                name = assigned[1] or assigned[2] or assigned[3]
                reading = replace(reading, environment={**reading.environment, name: _unquoted(assigned[4])})
                continue
            try:
                found = reading.entry(words)
            except DefinitionError as refused:
                refusals.append(f"line {number} of the crontab, {words!r}: {refused}")
                continue
            if found.theirs == ():
                never = f"line {number} never runs: there is no such day; start it by hand"
                found = replace(found, remarks=(*found.remarks, never))
            yield found
        if refusals:
            raise DefinitionError("\n".join(refusals))

    def entry(self, words: str) -> Foreign:
        """One line: when, perhaps who, and what."""
        count = 1 if words.startswith("@") else FIELDS
        parts = words.split(None, count + self.has_users)
        if len(parts) <= count + self.has_users:
            raise DefinitionError("there is no command" + (" after the user" if self.has_users else ""))
        written, command = " ".join(parts[:count]), _command(parts[-1], self.environment)
        user = parts[count] if self.has_users else None
        found = Foreign(external_id=_name(command.line), task=command.line, written=written, input=command)
        found = self._timed(found, written)
        return replace(found, remarks=(*found.remarks, *self._remarks(user)))

    def _timed(self, found: Foreign, written: str) -> Foreign:
        if written.lower() == REBOOT:
            return replace(found, remarks=("it ran when the machine started: start it by hand",))
        fields = _fields(written)
        if any("~" in one for one in fields):
            return replace(found, remarks=(f"{written} is drawn by chance: choose a time, with `variance`",))
        zone = self.environment.get("CRON_TZ", self.zone)
        try:
            when = cron(short(" ".join(fields)), tz=zone)
        except DefinitionError:
            if not self._never_comes(fields, zone):
                raise
            return replace(found, theirs=())
        return replace(
            found,
            when=when,
            options={"on_misfire": "do_nothing"},
            remarks=_day_remarks(fields),
            theirs=Line.read(fields).next(zone_named(zone), self.now, COMPARED),
        )

    def _never_comes(self, fields: list[str], zone: str) -> bool:
        """Whether cron understands this, and waits for ever: as for the 30th of February."""
        try:
            return not Line.read(fields).next(zone_named(zone), self.now, 1)
        except DefinitionError:
            return False

    def _remarks(self, user: str | None) -> Iterator[str]:
        if user is not None:
            yield f"it ran as {user}; here it runs as whoever runs the worker"
        if delay := self.environment.get("RANDOM_DELAY"):
            yield f"RANDOM_DELAY={delay} put each start off by chance; `variance` does that here"


def is_of_the_system(file: Path) -> bool:
    """Whether its lines name a user: so it is in /etc, and nowhere else."""
    return file.resolve().parent in {Path("/etc"), Path("/etc/cron.d")}


def zone_of_this_machine() -> str:
    """The time zone that cron would read clocks in, if it ran here; UTC where that cannot be found out."""
    for name in (os.environ.get("TZ", "").lstrip(":"), _linked(Path("/etc/localtime"))):
        try:
            return zone_named(name).key
        except DefinitionError:
            continue
    return "UTC"


def _linked(link: Path) -> str:
    return str(link.resolve()).partition("/zoneinfo/")[2]


def _fields(written: str) -> list[str]:
    if not written.startswith("@"):
        return written.split()
    plain = ALIASES.get(written.lower())
    if plain is None:
        raise DefinitionError(f"{written} is not understood{did_you_mean(written, [*ALIASES, REBOOT])}")
    return plain.split()


def _day_remarks(fields: list[str]) -> tuple[str, ...]:
    day, weekday = fields[2], fields[4]
    if day.startswith("*") or weekday.startswith("*"):
        return ()
    return (f"it runs on day {day} and on {weekday}, not only when both meet: cron's rule, and ours",)


def _command(text: str, environment: Mapping[str, str]) -> Command:
    """An unescaped percent sign ends the command; what follows it is its input, a line for each."""
    line, *lines = (part.replace(r"\%", "%") for part in PERCENT.split(text))
    own: dict[str, Any] = {name: value for name, value in environment.items() if name not in ABOUT_CRON}
    return Command(line.strip(), "\n".join(lines) + "\n" if lines else None, own)


def _unquoted(value: str) -> str:
    quoted = re.fullmatch(r"""(["'])(.*)\1""", value.strip())
    return quoted[2] if quoted else value.strip()


def _name(line: str) -> str:
    """What is run, without where it lies and without what it is told."""
    words = [word for word in line.split() if "=" not in word] or ["job"]
    return Path(words[0]).stem if words[0] not in {"cd", "sh", "bash", "test", "["} else " ".join(words[:6])
