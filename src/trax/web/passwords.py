"""Verify passwords; after a login, replace a hash of a lower cost by one of the current cost.

Users are configured in code or in the environment, which Trax cannot edit. So the new hash is a row, used in
place of the configured hash as long as that is unchanged. The password in it and the row as a whole are keyed
with the configured hash: without the configuration, a row does not help to guess a password, and a forged row
does not grant access.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from trax.app.app import Trax
from trax.errors import StoreError
from trax.store import web_sessions
from trax.store.web_sessions import StoredPassword
from trax.web.access import CHECKS, COST_LOG2, Access, User, is_outdated

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trax.store import Connection, Store

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Passwords:
    """The passwords of the users of one web application."""

    app: Trax
    access: Access
    _users_logged: set[str] = field(default_factory=set[str])
    """Users whose configured hash was logged as outdated."""
    _is_failure_logged: bool = False

    async def find_user(
        self, name: str, password: str, *, networks: Sequence[str], is_first: bool
    ) -> User | None:
        """Verify name and password; None if one of them is wrong. Raises TooManyChecks.

        A wrong name takes as long as a wrong password: it is verified against the hash of another user.
        """
        users = self.access.users
        checked = name if name in users else _decoy_name(name, users)
        with CHECKS.queue(networks, is_first=is_first):
            rows = await self._load()
            valid = {row.user: row for row in rows or () if self._is_valid(row)}
            if not await _is_right(password, users[checked], valid.get(checked)) or checked != name:
                return None
            if is_outdated(users[name].password, COST_LOG2):
                self._log_outdated(name)
            if rows is not None:
                await self._replace(name, password, rows, valid)
        return users[name]

    def _is_valid(self, row: StoredPassword) -> bool:
        """Whether a row is used: its hash is better than the configured one, which is still the same."""
        user = self.access.users.get(row.user)
        if user is None or not is_outdated(user.password, COST_LOG2) or is_outdated(row.hash, COST_LOG2):
            return False
        proof = _proof(row.user, row.hash, user.password)
        return hmac.compare_digest(proof.encode(), row.proof.encode())  # text must be ASCII, a row need not

    async def _replace(
        self, name: str, password: str, rows: Collection[StoredPassword], valid: Mapping[str, StoredPassword]
    ) -> None:
        """Write a row for this user if they need one, and delete the rows that are invalid."""
        void = [row for row in rows if row.user not in valid]
        configured, new = self.access.users[name].password, None
        if name not in valid and is_outdated(configured, COST_LOG2):
            mac = _password_mac(password, configured)
            better = await CHECKS.new_hash(mac, COST_LOG2)
            new = StoredPassword(name, better, _proof(name, better, configured))
        if not (new or void):
            return
        try:
            store = await self.app.context.store.open()
            await store.call(_write, store, new, void, self.app.context.name)
        except StoreError as error:
            self._log_failure(error)

    async def _load(self) -> list[StoredPassword] | None:
        """Load all rows, so that the query does not depend on the name; None if the database fails."""
        try:
            store = await self.app.context.store.open()
            return await store.ask(web_sessions.load_passwords, app=self.app.context.name)
        except StoreError as error:
            self._log_failure(error)
            return None

    def _log_outdated(self, name: str) -> None:
        if name in self._users_logged:
            return
        self._users_logged.add(name)
        logger.warning(
            "user %s: the configured password hash has a lower cost than the current default; "
            "configure a new one made with `trax dashboard --hash-password`",
            name,
        )

    def _log_failure(self, error: StoreError) -> None:
        if self._is_failure_logged:
            return
        self._is_failure_logged = True
        logger.warning(
            "dashboard: password hashes of the current cost cannot be read or written, "
            "so logins use the configured hashes: %s",
            error,
        )


async def _is_right(password: str, user: User, row: StoredPassword | None) -> bool:
    if row is None:
        return await CHECKS.is_right(password, user.password)
    return await CHECKS.is_right(_password_mac(password, user.password), row.hash)


def _password_mac(password: str, configured: str) -> str:
    return _mac(configured, "password", password)


def _proof(name: str, better: str, configured: str) -> str:
    return _mac(configured, "row", f"{name}\n{better}")


def _mac(configured: str, purpose: str, text: str) -> str:
    return hmac.new(configured.encode(), f"{purpose}\n{text}".encode(), sha256).hexdigest()


def _write(
    connection: Connection, store: Store, new: StoredPassword | None, void: list[StoredPassword], app: str
) -> None:
    web_sessions.delete_void_passwords(connection, void, app=app)
    if new is not None:
        web_sessions.write_password(connection, new, app=app, now=store.now(connection))


def _decoy_name(name: str, users: Mapping[str, User]) -> str:
    """A configured user to verify against for an unknown name, always the same one for one name.

    Thus an unknown name takes as long as a known one, whatever the cost of the hashes.
    """
    known = sorted(users)
    index = int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:8]) % len(known)
    return known[index]
