"""The keys of `$TRAX_SECRET_KEY`, and secrets encrypted with them.

A sealed secret is text: `v1:<id of the key>:<ciphertext>:<train> <place>`. The place is part of what is
authenticated, so a ciphertext that is moved to another field or train cannot be read there. The first key
encrypts, all of them decrypt.
"""

from __future__ import annotations

import os
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.errors import DefinitionError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Collection

VARIABLE: Final = "TRAX_SECRET_KEY"
EXTRA: Final = "secrets"
KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
VERSION: Final = "v1"
SEALED: Final = re.compile(r"v1:([0-9a-f]{8}):([A-Za-z0-9_=-]+):(\S+) (.*)", re.DOTALL)


class Unreadable(Exception):
    """Why a sealed secret cannot be read here, in words that hold nothing of it."""


class Seal(NamedTuple):
    """The parts of a sealed secret: the key it needs, what is encrypted, and where it belongs."""

    key_id: str
    ciphertext: bytes
    train: str
    place: str

    @classmethod
    def parse(cls, text: str) -> Seal:
        found = SEALED.fullmatch(text)
        try:
            if found is not None:
                return cls(found[1], urlsafe_b64decode(found[2]), found[3], found[4])
        except (NotBase64, ValueError):
            pass
        raise Unreadable("is no secret that this version of Trax can read")

    @property
    def belongs_to(self) -> list[bytes]:
        return [f"trax {VERSION} {self.train} {self.place}".encode()]


class Keyring:
    """Seals and opens secrets. Keys are 32 random bytes in base64."""

    def __init__(self, keys: list[bytes]) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV
            from cryptography.hazmat.primitives.hashes import SHA512
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ModuleNotFoundError as missing:
            raise MissingExtra(f"${VARIABLE}", EXTRA, "cryptography") from missing

        def cipher(key: bytes) -> Any:
            return AESSIV(HKDF(SHA512(), 64, salt=None, info=b"trax secret v1").derive(key))

        self._ciphers = {key_id(key): cipher(key) for key in keys}
        self.first = key_id(keys[0])

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._ciphers)

    def seal(self, plain: str, train: str, place: str, *, steady: bool = False) -> str:
        """Encrypt a text for its place. With `steady` the same text there gives the same secret each time."""
        salt = bytes(SALT_BYTES) if steady else secrets.token_bytes(SALT_BYTES)
        return self._write(salt + plain.encode(), train, place)

    def open(self, text: str, trains: Collection[str], place: str) -> str:
        """The text that was sealed for this place of a train, which may have had other names before."""
        seal = Seal.parse(text)
        if seal.train not in trains or seal.place != place:
            raise Unreadable(
                f"was encrypted for {seal.place} of train {seal.train!r}, and can be read only there"
            )
        return self._read(seal)[SALT_BYTES:].decode()

    def reseal(self, text: str) -> str:
        """The same secret under the first key; a steady one stays steady. One under it already is kept."""
        seal = Seal.parse(text)
        return text if seal.key_id == self.first else self._write(self._read(seal), seal.train, seal.place)

    def _write(self, salted: bytes, train: str, place: str) -> str:
        seal = Seal(self.first, b"", train, place)
        ciphertext = self._ciphers[self.first].encrypt(salted, seal.belongs_to)
        return f"{VERSION}:{self.first}:{urlsafe_b64encode(ciphertext).decode()}:{train} {place}"

    def _read(self, seal: Seal) -> bytes:
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers.get(seal.key_id)
        if cipher is None:
            raise Unreadable(missing_key(seal.key_id))
        try:
            return cipher.decrypt(seal.ciphertext, seal.belongs_to)
        except (InvalidTag, ValueError):
            raise Unreadable(f"was changed since key {seal.key_id} encrypted it") from None


def load_keyring() -> Keyring | None:
    """The keys of this process; None where there are none.

    Raises DefinitionError for a key that cannot be one, and MissingExtra where nothing can encrypt.
    """
    text = os.environ.get(VARIABLE, "").strip()
    return _keyring(text) if text else None


def generate_key() -> str:
    return urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def key_id(key: bytes) -> str:
    """By which a secret names its key. Nothing of the key can be learned from it."""
    return sha256(b"trax secret key id\0" + key).hexdigest()[:8]


def missing_key(wanted: str) -> str:
    return f"is encrypted with key {wanted}, which ${VARIABLE} does not have here"


@lru_cache(maxsize=4)
def _keyring(text: str) -> Keyring:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return Keyring([_key(part, number, len(parts)) for number, part in enumerate(parts, 1)])


def _key(text: str, number: int, count: int) -> bytes:
    try:
        key = urlsafe_b64decode(text)
    except (NotBase64, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        which = "its value" if count == 1 else f"key {number} of {count}"
        raise DefinitionError(
            f"${VARIABLE}: {which} is not {KEY_BYTES} bytes in base64; `trax secrets generate-key` makes one"
        )
    return key
