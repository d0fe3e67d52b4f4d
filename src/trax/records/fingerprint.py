"""What makes two failures the same failure."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

CHARACTERS: Final = 16
LOOKED_AT: Final = 2_000
"""What stands further on in a long message does not tell failures apart."""

QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|«[^»\n]*»")
ID: Final = re.compile(
    r"\b(?=[0-9a-z-]*\d)[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b|\b0x[0-9a-f]+\b", re.IGNORECASE
)
LONG_HEX: Final = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE)
NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
SPACE: Final = re.compile(r"\s+")


def fingerprint(train: str, exception: str | None, junction: str | None, reason: str | None) -> str:
    """A short name for this kind of failure: the same for messages that differ in numbers, ids and names."""
    parts = (train, exception or "", junction or "", normalised(reason or ""))
    return sha256("\x00".join(parts).encode("utf-8", "replace")).hexdigest()[:CHARACTERS]


def normalised(reason: str) -> str:
    """A message without what differs from one failure to the next."""
    text = reason[:LOOKED_AT]
    for pattern, blank in ((QUOTED, "'…'"), (ID, "#"), (LONG_HEX, "#"), (NUMBER, "#"), (SPACE, " ")):
        text = pattern.sub(blank, text)
    return text.strip().casefold()
