"""Encrypt and decrypt secrets with the keys of `$TRAX_SECRET_KEY`.

A sealed secret is text: `v1:<key id>:<ciphertext>:<train> <place>`. Train and place are authenticated data,
so a ciphertext that is moved to another field or train cannot be decrypted there. The first key encrypts,
all keys decrypt.
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
SEAL_PATTERN: Final = re.compile(r"v1:([0-9a-f]{8}):([A-Za-z0-9_=-]+):(\S+) (.*)", re.DOTALL)


class SealError(Exception):
    """Why a sealed secret cannot be decrypted here; the message contains nothing of the secret."""


class Seal(NamedTuple):
    """The parts of a sealed secret: key id, ciphertext, train and place."""

    key_id: str
    ciphertext: bytes
    train: str
    place: str

    @classmethod
    def parse(cls, text: str) -> Seal:
        match = SEAL_PATTERN.fullmatch(text)
        try:
            if match is not None:
                return cls(match[1], urlsafe_b64decode(match[2]), match[3], match[4])
        except (NotBase64, ValueError):
            pass
        raise SealError("is not a secret that this version of Trax can read")

    @property
    def associated_data(self) -> list[bytes]:
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
        self.primary_id = key_id(keys[0])

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._ciphers)

    def seal(self, plain: str, train: str, place: str, *, deterministic: bool = False) -> str:
        """Encrypt a text for its place; optionally deterministic: the same text gives the same ciphertext."""
        salt = bytes(SALT_BYTES) if deterministic else secrets.token_bytes(SALT_BYTES)
        return self._encrypt(salt + plain.encode(), train, place)

    def open(self, text: str, trains: Collection[str], place: str) -> str:
        """Decrypt a text that was sealed for this place of a train; `trains` are its name and aliases."""
        seal = Seal.parse(text)
        if seal.train not in trains or seal.place != place:
            raise SealError(
                f"was encrypted for {seal.place} of train {seal.train!r}, and can be read only there"
            )
        return self._decrypt(seal)[SALT_BYTES:].decode()

    def reseal(self, text: str) -> str:
        """Encrypt a secret again with the first key, unless it is already. A deterministic one stays so."""
        seal = Seal.parse(text)
        return (
            text
            if seal.key_id == self.primary_id
            else self._encrypt(self._decrypt(seal), seal.train, seal.place)
        )

    def _encrypt(self, salted: bytes, train: str, place: str) -> str:
        seal = Seal(self.primary_id, b"", train, place)
        ciphertext = self._ciphers[self.primary_id].encrypt(salted, seal.associated_data)
        return f"{VERSION}:{self.primary_id}:{urlsafe_b64encode(ciphertext).decode()}:{train} {place}"

    def _decrypt(self, seal: Seal) -> bytes:
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers.get(seal.key_id)
        if cipher is None:
            raise SealError(describe_missing_key(seal.key_id))
        try:
            return cipher.decrypt(seal.ciphertext, seal.associated_data)
        except (InvalidTag, ValueError):
            raise SealError(f"was modified after key {seal.key_id} encrypted it") from None


def load_keyring() -> Keyring | None:
    """The keys of this process; None if `$TRAX_SECRET_KEY` is not set.

    Raises DefinitionError for an invalid key, and MissingExtra if `cryptography` is not installed.
    """
    text = os.environ.get(VARIABLE, "").strip()
    return _keyring(text) if text else None


def generate_key() -> str:
    return urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def key_id(key: bytes) -> str:
    """The id of a key, stored with each secret. It reveals nothing of the key."""
    return sha256(b"trax secret key id\0" + key).hexdigest()[:8]


def describe_missing_key(wanted_id: str) -> str:
    return f"is encrypted with key {wanted_id}, which is missing from ${VARIABLE} here"


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
            f"${VARIABLE}: {which} is not {KEY_BYTES} bytes in base64; run `trax secrets generate-key`"
        )
    return key
