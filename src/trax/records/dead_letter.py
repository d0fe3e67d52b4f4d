"""Dead letters, and fingerprints of failures, which group letters with the same cause."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from trax.records.states import DeadLetterStatus

FINGERPRINT_CHARACTERS: Final = 16

FINGERPRINT_INPUT_CHARACTERS: Final = 2_000
"""How much of a long message the fingerprint uses."""

QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|«[^»\n]*»")

ID: Final = re.compile(
    r"\b(?=[0-9a-z-]*\d)[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b|\b0x[0-9a-f]+\b", re.IGNORECASE
)

LONG_HEX: Final = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE)

NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")

SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A job whose last attempt failed, and which awaits an operator, who requeues or acknowledges it."""

    id: int
    """Its id."""
    manifest: str | None = None
    """The external id of its manifest; None: the job was queued without one."""
    train: str
    """The name of the train."""
    status: DeadLetterStatus
    """`awaiting_intervention`, then `retried` or `acknowledged`."""
    reason: str
    """Why it is not retried any more."""
    retry_count: int
    """How many of its runs have failed."""
    input: Any = None
    """The input of its runs."""
    dead_lettered_at: datetime
    """When it became a dead letter."""
    resolved_at: datetime | None = None
    """When it was requeued or acknowledged."""
    note: str | None = None
    """The operator's note."""
    retry_metadata_id: int | None = None
    """The id of the run it was requeued as."""
    last_metadata_id: int | None = None
    """The id of the last failed run; its record may have been deleted."""
    failure_exception: str | None = None
    """The exception of that run."""
    failure_junction: str | None = None
    """The junction in which it failed."""
    failure_reason: str | None = None
    """The exception's message."""
    fingerprint: str = ""
    """The same for failures that differ only in numbers, ids and names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Open dead letters with the same fingerprint: their number, first and last time, and the latest one."""

    fingerprint: str
    train: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: DeadLetter


def fingerprint(train: str, exception: str | None, junction: str | None, reason: str | None) -> str:
    """A short hash of a failure: the same for messages that differ only in numbers, ids and names."""
    parts = (train, exception or "", junction or "", normalise(reason or ""))
    return sha256("\x00".join(parts).encode("utf-8", "replace")).hexdigest()[:FINGERPRINT_CHARACTERS]


def normalise(reason: str) -> str:
    """Replace the parts of a message that differ from failure to failure: quoted text, ids, numbers."""
    text = reason[:FINGERPRINT_INPUT_CHARACTERS]
    for pattern, blank in ((QUOTED, "'…'"), (ID, "#"), (LONG_HEX, "#"), (NUMBER, "#"), (SPACE, " ")):
        text = pattern.sub(blank, text)
    return text.strip().casefold()
