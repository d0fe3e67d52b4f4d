"""Fingerprints of failures, to group dead letters with the same cause."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

FINGERPRINT_CHARACTERS: Final = 16
MAX_REASON_CHARACTERS: Final = 2_000
"""How much of a long message the fingerprint uses."""

QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|«[^»\n]*»")
ID: Final = re.compile(
    r"\b(?=[0-9a-z-]*\d)[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b|\b0x[0-9a-f]+\b", re.IGNORECASE
)
LONG_HEX: Final = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE)
NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
SPACE: Final = re.compile(r"\s+")


def fingerprint(train: str, exception: str | None, junction: str | None, reason: str | None) -> str:
    """A short hash of a failure: the same for messages that differ only in numbers, ids and names."""
    parts = (train, exception or "", junction or "", normalise(reason or ""))
    return sha256("\x00".join(parts).encode("utf-8", "replace")).hexdigest()[:FINGERPRINT_CHARACTERS]


def normalise(reason: str) -> str:
    """Replace the parts of a message that differ from failure to failure: quoted text, ids, numbers."""
    text = reason[:MAX_REASON_CHARACTERS]
    for pattern, blank in ((QUOTED, "'…'"), (ID, "#"), (LONG_HEX, "#"), (NUMBER, "#"), (SPACE, " ")):
        text = pattern.sub(blank, text)
    return text.strip().casefold()
