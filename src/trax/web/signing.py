"""Text that only we can have written: an HMAC beside it."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Self


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs for one purpose at a time, so that what was signed for one is worth nothing for another."""

    key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: str | None) -> Self:
        """From a configured secret, or from chance: then it is worth nothing in another process."""
        return cls(secrets.token_bytes(32) if secret is None else sha256(secret.encode()).digest())

    def sign(self, purpose: str, text: str) -> str:
        return hmac.new(self.key, f"{purpose}\n{text}".encode(), sha256).hexdigest()

    def has_signed(self, purpose: str, text: str, signature: str) -> bool:
        return hmac.compare_digest(self.sign(purpose, text).encode(), signature.encode())
