"""Read a crontab: of a user, or of the system with a user name in each line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trax.cli.importing.cron_rules import CrontabLine, shorten_names
from trax.cli.importing.foreign import MOMENTS_COMPARED, Command, ImportedJob
from trax.errors import DefinitionError, did_you_mean
from trax.schedule.cron import ALIASES, cron
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator

REBOOT: Final = "@reboot"
FIELDS: Final = 5
ASSIGNMENT: Final = re.compile(r"""^(?:"([^"]+)"|'([^']+)'|([A-Za-z_]\w*))\s*=\s*(.*)$""")
PERCENT: Final = re.compile(r"(?<!\\)%")
CRON_VARIABLES: Final = ("CRON_TZ", "MAILTO", "MAILFROM", "RANDOM_DELAY")
"""Variables for cron itself, not for the commands."""
GENERAL_REMARKS: Final = (
    "cron does not catch up runs missed while it was off; remove on_misfire=do_nothing to catch up",
    "cron starts the next run while the last one is still running; in Trax it waits",
    "cron has no timeout; timeout=NO_LIMIT does the same, and a shorter one is better",
    "cron mails the output of a command; in Trax it is in the log of the run, and a failed run is retried",
)


@dataclass(frozen=True, slots=True)
class Crontab:
    """Reads a crontab; `zone` is the time zone where no CRON_TZ is set."""

    has_users: bool
    zone: str
    now: datetime
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def read(self, text: str) -> Iterator[ImportedJob]:
        """Every line that runs a command. An assignment applies to the lines below it.

        Invalid lines raise DefinitionError after all lines are read, with one line each.
        """
        reading, errors = self, list[str]()
        for number, line in enumerate(text.splitlines(), start=1):
            line_text = line.strip()
            if not line_text or line_text.startswith("#"):
                continue
            if (assigned := ASSIGNMENT.match(line_text)) is not None:
                name = assigned[1] or assigned[2] or assigned[3]
                reading = replace(reading, environment={**reading.environment, name: _unquote(assigned[4])})
                continue
            try:
                found = reading.entry(line_text)
            except DefinitionError as error:
                errors.append(f"line {number} of the crontab, {line_text!r}: {error}")
                continue
            if found.theirs == ():
                never = f"line {number} never runs: there is no such day; runs on demand only"
                found = replace(found, remarks=(*found.remarks, never))
            yield found
        if errors:
            raise DefinitionError("\n".join(errors))

    def entry(self, line_text: str) -> ImportedJob:
        """Parse one line: schedule, user if there is one, and command."""
        count = 1 if line_text.startswith("@") else FIELDS
        parts = line_text.split(None, count + self.has_users)
        if len(parts) <= count + self.has_users:
            raise DefinitionError("there is no command" + (" after the user" if self.has_users else ""))
        written, command = " ".join(parts[:count]), _command(parts[-1], self.environment)
        user = parts[count] if self.has_users else None
        found = ImportedJob(
            external_id=_name(command.line), task=command.line, schedule_text=written, input=command
        )
        found = self._with_schedule(found, written)
        return replace(found, remarks=(*found.remarks, *self._remarks(user)))

    def _with_schedule(self, job: ImportedJob, schedule_text: str) -> ImportedJob:
        if schedule_text.lower() == REBOOT:
            return replace(job, remarks=("cron runs it at boot; runs on demand only",))
        fields = _fields(schedule_text)
        if any("~" in field for field in fields):
            return replace(job, remarks=(f"{schedule_text} is a random time: choose one, with `variance`",))
        zone = self.environment.get("CRON_TZ", self.zone)
        try:
            when = cron(shorten_names(" ".join(fields)), tz=zone)
        except DefinitionError:
            if not self._never_comes(fields, zone):
                raise
            return replace(job, theirs=())
        return replace(
            job,
            when=when,
            options={"on_misfire": "do_nothing"},
            remarks=_day_remarks(fields),
            theirs=CrontabLine.read(fields).next(zone_named(zone), self.now, MOMENTS_COMPARED),
        )

    def _never_comes(self, fields: list[str], zone: str) -> bool:
        """Whether cron accepts this but never runs it, as for February 30."""
        try:
            return not CrontabLine.read(fields).next(zone_named(zone), self.now, 1)
        except DefinitionError:
            return False

    def _remarks(self, user: str | None) -> Iterator[str]:
        if user is not None:
            yield f"cron runs it as {user}; Trax runs it as the user of the worker"
        if delay := self.environment.get("RANDOM_DELAY"):
            yield f"RANDOM_DELAY={delay} delays each start at random; use `variance` in Trax"


def is_system_crontab(file: Path) -> bool:
    """Whether its lines name a user, as in /etc/crontab and /etc/cron.d."""
    return file.resolve().parent in {Path("/etc"), Path("/etc/cron.d")}


def local_zone_name() -> str:
    """The time zone of this machine; UTC if it is unknown."""
    for name in (os.environ.get("TZ", "").lstrip(":"), _zone_of_link(Path("/etc/localtime"))):
        try:
            return zone_named(name).key
        except DefinitionError:
            continue
    return "UTC"


def _zone_of_link(link: Path) -> str:
    return str(link.resolve()).partition("/zoneinfo/")[2]


def _fields(schedule_text: str) -> list[str]:
    if not schedule_text.startswith("@"):
        return schedule_text.split()
    plain = ALIASES.get(schedule_text.lower())
    if plain is None:
        raise DefinitionError(
            f"invalid schedule {schedule_text}{did_you_mean(schedule_text, [*ALIASES, REBOOT])}"
        )
    return plain.split()


def _day_remarks(fields: list[str]) -> tuple[str, ...]:
    day, weekday = fields[2], fields[4]
    if day.startswith("*") or weekday.startswith("*"):
        return ()
    return (f"it runs on day {day} and on {weekday}, not only if both match; cron and Trax agree",)


def _command(text: str, environment: Mapping[str, str]) -> Command:
    """An unescaped percent sign ends the command; each further one starts a line of stdin."""
    line, *lines = (part.replace(r"\%", "%") for part in PERCENT.split(text))
    own: dict[str, Any] = {name: value for name, value in environment.items() if name not in CRON_VARIABLES}
    return Command(line.strip(), "\n".join(lines) + "\n" if lines else None, own)


def _unquote(value: str) -> str:
    quoted = re.fullmatch(r"""(["'])(.*)\1""", value.strip())
    return quoted[2] if quoted else value.strip()


def _name(line: str) -> str:
    """The name of the program, without path and arguments."""
    words = [word for word in line.split() if "=" not in word] or ["job"]
    return Path(words[0]).stem if words[0] not in {"cd", "sh", "bash", "test", "["} else " ".join(words[:6])
