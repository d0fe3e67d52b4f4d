"""Who may use the dashboard and the API: tokens, users, roles; password hashes, verified one at a time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import partial
from hashlib import sha256
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from trax.errors import DefinitionError, did_you_mean, format_value
from trax.web.peer import FORWARDING_KINDS, X_FORWARDED, parse_hosts, parse_networks

if TYPE_CHECKING:
    from starlette.requests import Request


T = TypeVar("T")

COST_LOG2: Final = 17

BLOCK: Final = 8

PARALLEL: Final = 1

SALT_BYTES: Final = 16

HASH_BYTES: Final = 32

LARGEST_WORK: Final = 2**21
"""The largest accepted N·r·p: 256 MB, twice the current default cost."""

MEMORY_BYTES: Final = 512 * 1024 * 1024

HASH_FORMAT: Final = re.compile(
    r"scrypt\.(\d{1,2})\.(\d{1,2})\.(\d)\.([\w-]{16,}=*)\.([\w-]{22,}=*)", re.ASCII
)

WAITING_AT_MOST: Final = 16

WAITING_FROM_ONE_ADDRESS: Final = 4

WAITING_AFTER_FAILURES: Final = 8
"""From networks that have failed before. The other places are kept for those that have not."""


TOKENS: Final = "TRAX_WEB_TOKENS"

USERS: Final = "TRAX_WEB_USERS"

SECRET: Final = "TRAX_WEB_SECRET"  # noqa: S105 - the name of a variable

ANONYMOUS: Final = "TRAX_WEB_ANONYMOUS"

TRUSTED_PROXIES: Final = "TRAX_WEB_TRUSTED_PROXIES"

FORWARDING_HEADER: Final = "TRAX_WEB_FORWARDING_HEADER"

ALLOWED_HOSTS: Final = "TRAX_WEB_ALLOWED_HOSTS"

OPEN_HEALTH: Final = "TRAX_WEB_OPEN_HEALTH"

LOCAL: Final = "local"
"""The name of an operator who signed in with a link, or connects locally with `insecure_local`."""

SWITCH: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}

MIN_SECRET_LENGTH: Final = 16

TOKEN_HASH: Final = re.compile(r"sha256\.[0-9a-f]{64}", re.ASCII)

CREATE_TOKEN: Final = "create one with `trax dashboard --create-token`"  # noqa: S105

SHORTEST_PASSWORD: Final = 12

LONGEST_PASSWORD: Final = 1000

FEWEST_CHARACTERS: Final = 5

CREATE_SECRET: Final = 'create one with: python -c "import secrets; print(secrets.token_urlsafe())"'  # noqa: S105

SESSION_LIFETIME: Final = timedelta(hours=12)

SESSION_IDLE_TIMEOUT: Final = timedelta(hours=2)

SHORTEST_IDLE_TIMEOUT: Final = timedelta(minutes=5)
"""Uses are written once a minute."""


class Role(StrEnum):
    """A viewer may only read; an operator may also make changes."""

    VIEWER = "viewer"
    OPERATOR = "operator"

    @classmethod
    def parse(cls, name: str) -> Self:
        try:
            return cls(name)
        except ValueError:
            hint = did_you_mean(name, cls) or f"; expected one of {', '.join(cls)}"
            raise DefinitionError(f"invalid dashboard role {name!r}{hint}") from None


class Means(StrEnum):
    """How a client was authenticated."""

    TOKEN = "token"  # noqa: S105
    SESSION = "session"
    HOOK = "hook"
    ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Visitor:
    """The client of a request. `session` and `session_id` are the secret and id of its session, if any."""

    name: str
    role: Role
    means: Means = Means.HOOK
    session: str | None = field(default=None, repr=False)
    session_id: int | None = None

    @property
    def may_change(self) -> bool:
        return self.role is Role.OPERATOR


@dataclass(frozen=True, slots=True)
class Token:
    """A secret that a program sends as `Authorization: Bearer …`.

    `secret` is the hash that `trax dashboard --create-token` prints, or the secret itself, of which only the
    hash is kept. The secret is long and random, so its hash needs no salt and no cost.
    """

    secret: str = field(repr=False)
    role: Role = Role.VIEWER
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        if not TOKEN_HASH.fullmatch(self.secret):
            if len(self.secret) < MIN_SECRET_LENGTH:
                raise DefinitionError(
                    f"a token secret needs {MIN_SECRET_LENGTH} characters or more (got {len(self.secret)}); "
                    f"{CREATE_TOKEN}"
                )
            object.__setattr__(self, "secret", hash_token(self.secret))
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise DefinitionError(
                f"expires_at of a token needs a time zone, such as UTC (got {format_value(self.expires_at)})"
            )
        object.__setattr__(self, "role", Role.parse(self.role))

    @classmethod
    def parse(cls, name: str, role: Role, text: str) -> Self:
        """Parse the third part of an entry of `TRAX_WEB_TOKENS`: a hash, or a hash and its last day."""
        hashed, colon, day = text.partition(":")
        if not colon or not TOKEN_HASH.fullmatch(hashed):
            return cls(text, role)
        try:
            end = datetime.combine(date.fromisoformat(day), time(), UTC) + timedelta(days=1)
        except (ValueError, OverflowError):
            raise DefinitionError(
                f"the last day of token {format_value(name)} must be like 2027-12-31 "
                f"(got {format_value(day)})"
            ) from None
        return cls(hashed, role, end)


@dataclass(frozen=True, slots=True)
class User:
    """A person who logs in. `password` is the hash that `trax dashboard --hash-password` prints."""

    password: str = field(repr=False)
    role: Role = Role.VIEWER

    def __post_init__(self) -> None:
        if not is_hash(self.password):
            raise DefinitionError(
                "the password of a user must be a hash, not plain text; "
                "create one with `trax dashboard --hash-password`"
            )
        object.__setattr__(self, "role", Role.parse(self.role))


AuthorizeResult = Role | Visitor | None

Authorize = Callable[["Request"], AuthorizeResult | Awaitable[AuthorizeResult]]
"""Returns the role of the client, or a Visitor to also give its name; None denies access."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may use the dashboard and the API.

    `secret` signs the forms of the pages: give all servers behind one address the same one. Without it each
    process creates its own, and rejects forms that another process rendered.
    """

    tokens: Mapping[str, Token] = field(default_factory=lambda: MappingProxyType({}))
    users: Mapping[str, User] = field(default_factory=lambda: MappingProxyType({}))
    authorize: Authorize | None = None
    allow_anonymous: Role | bool = False
    """Allow unauthenticated access: as an operator (True), or in the given role."""
    secret: str | None = field(default=None, repr=False)
    session_lifetime: timedelta = SESSION_LIFETIME
    session_idle_timeout: timedelta | None = SESSION_IDLE_TIMEOUT
    """A session that nobody uses for this long ends; an open page alone is no use. None: no limit."""
    insecure_local: bool = False
    """Treat every process of this machine as an operator if it connects to a loopback address."""
    trusted_proxies: Sequence[str] = ()
    """Addresses or networks of proxies whose forwarding headers are used."""
    forwarding_header: str = X_FORWARDED
    """Which headers the proxies write: `x-forwarded-for` (with `X-Forwarded-Proto`), or `forwarded`."""
    allowed_hosts: Sequence[str] = ()
    """The names under which the dashboard is reached. If given, requests with another `Host` are refused.

    If not, clients that nothing identifies have access only under an address or as localhost.
    """
    open_health: bool = False
    """Serve `/health` without authentication; `/health/live` never needs any."""

    def __post_init__(self) -> None:
        if self.secret is not None and len(self.secret) < MIN_SECRET_LENGTH:
            raise DefinitionError(
                f"the secret of Access needs {MIN_SECRET_LENGTH} characters or more "
                f"(got {len(self.secret)}); {CREATE_SECRET}"
            )
        if not isinstance(self.allow_anonymous, bool):
            object.__setattr__(self, "allow_anonymous", Role.parse(self.allow_anonymous))
        if self.session_idle_timeout is not None and self.session_idle_timeout < SHORTEST_IDLE_TIMEOUT:
            raise DefinitionError(
                f"session_idle_timeout must be {format_value(SHORTEST_IDLE_TIMEOUT)} or more, or None "
                f"(got {format_value(self.session_idle_timeout)})"
            )
        parse_networks(self.trusted_proxies)
        object.__setattr__(self, "allowed_hosts", parse_hosts(self.allowed_hosts))
        if self.forwarding_header not in FORWARDING_KINDS:
            raise DefinitionError(
                f"forwarding_header must be {' or '.join(FORWARDING_KINDS)} "
                f"(got {format_value(self.forwarding_header)})"
            )
        if self.insecure_local and self.trusted_proxies:
            raise DefinitionError(
                "insecure_local trusts every connection from this machine, and behind a proxy these are the "
                "connections of all clients; remove insecure_local or trusted_proxies"
            )

    @property
    def is_configured(self) -> bool:
        """Whether any access is configured. If not, a one-time link is the only way to sign in."""
        options = (self.tokens, self.users, self.authorize, self.allow_anonymous, self.insecure_local)
        return any(map(bool, options))

    @property
    def anonymous(self) -> Role | None:
        """The role of unauthenticated clients; None if they have no access."""
        return Role.OPERATOR if self.allow_anonymous is True else self.allow_anonymous or None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read `TRAX_WEB_TOKENS=ci:operator:SECRET,…`, `TRAX_WEB_USERS` in the same form, and the others."""
        variables = os.environ if environment is None else environment
        anonymous = variables.get(ANONYMOUS, "")
        return cls(
            tokens={
                name: Token.parse(name, role, text) for name, role, text in _parse_list(variables, TOKENS)
            },
            users={name: User(text, role) for name, role, text in _parse_list(variables, USERS)},
            secret=variables.get(SECRET) or None,
            allow_anonymous=Role.parse(anonymous) if anonymous else False,
            trusted_proxies=_parse_words(variables, TRUSTED_PROXIES),
            forwarding_header=variables.get(FORWARDING_HEADER, "").lower() or X_FORWARDED,
            allowed_hosts=_parse_words(variables, ALLOWED_HOSTS),
            open_health=_parse_switch(variables, OPEN_HEALTH),
        )

    def holder_of(self, secret: str, now: datetime) -> Visitor | None:
        """Find the holder of a token. All tokens are compared in constant time, so timing reveals nothing."""
        sent, found = hash_token(secret), None
        for name, token in self.tokens.items():
            is_valid = token.expires_at is None or now < token.expires_at
            if hmac.compare_digest(token.secret, sent) and is_valid:
                found = Visitor(name, token.role, Means.TOKEN)
        return found


def _parse_words(environment: Mapping[str, str], variable: str) -> tuple[str, ...]:
    return tuple(environment.get(variable, "").replace(",", " ").split())


def _parse_switch(environment: Mapping[str, str], variable: str) -> bool:
    value = environment.get(variable, "")
    if value.lower() not in SWITCH:
        raise DefinitionError(f"${variable} must be true or false (got {format_value(value)})")
    return SWITCH[value.lower()]


def _parse_list(environment: Mapping[str, str], variable: str) -> list[tuple[str, Role, str]]:
    entries: list[tuple[str, Role, str]] = []
    for number, word in enumerate(filter(None, environment.get(variable, "").split(",")), 1):
        name, _, rest = word.strip().partition(":")
        role, colon, text = rest.partition(":")
        if not name or not colon:
            raise DefinitionError(
                f"${variable} must be a comma-separated list of name:role:secret; entry {number} is not"
            )
        entries.append((name, Role.parse(role), text))
    return entries


def hash_token(secret: str) -> str:
    """The hash of a token's secret, for the configuration."""
    return f"sha256.{sha256(secret.encode(errors='surrogatepass')).hexdigest()}"


def check_password(password: str) -> None:
    """Raise for a password that is easy to guess, or that a login could not send."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise DefinitionError(
            f"a password needs {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters (got {len(password)})"
        )
    plain = password.lower()
    repeats = any(
        plain == (plain[:size] * len(plain))[: len(plain)] for size in range(1, len(plain) // 2 + 1)
    )
    runs = sum(abs(ord(second) - ord(first)) <= 1 for first, second in pairwise(plain))
    if repeats or len(set(plain)) < FEWEST_CHARACTERS or runs > len(plain) // 2:
        raise DefinitionError(
            "this password is a repetition or a sequence, and easy to guess; use several words, or "
            "characters from a password manager"
        )


def hash_password(password: str, *, cost_log2: int = COST_LOG2) -> str:
    """Hash a password for the configuration. The result has no characters that a shell would interpret."""
    salt = os.urandom(SALT_BYTES)
    digest = _digest(password, salt, cost_log2, BLOCK, PARALLEL)
    return f"scrypt.{cost_log2}.{BLOCK}.{PARALLEL}.{_encode(salt)}.{_encode(digest)}"


def is_hash(text: str) -> bool:
    """Whether this text is a complete password hash of an acceptable cost."""
    form = HASH_FORMAT.fullmatch(text)
    if form is None or int(form[1]) < 1:
        return False
    try:
        digest = urlsafe_b64decode(form[4]) and urlsafe_b64decode(form[5])
    except ValueError:
        return False
    return len(digest) == HASH_BYTES and 0 < _work(form) <= LARGEST_WORK


def is_outdated(text: str, cost_log2: int = COST_LOG2) -> bool:
    """Whether a hash has a lower cost than the current default."""
    form = HASH_FORMAT.fullmatch(text)
    return form is not None and _work(form) < 2**cost_log2 * BLOCK * PARALLEL


def _work(form: re.Match[str]) -> int:
    """N·r·p."""
    return 2 ** int(form[1]) * int(form[2]) * int(form[3])


def matches(password: str, configured: str) -> bool:
    """Verify a password. Takes most of a second and 128 MB: see `PasswordChecks`."""
    form = HASH_FORMAT.fullmatch(configured)
    if form is None:
        return False
    salt, expected = urlsafe_b64decode(form[4]), urlsafe_b64decode(form[5])
    actual = _digest(password, salt, int(form[1]), int(form[2]), int(form[3]))
    return hmac.compare_digest(actual, expected)


class TooManyChecks(Exception):
    """Too many passwords are waiting to be verified."""


class PasswordChecks:
    """Hashes one password at a time in a thread, which bounds memory and keeps the event loop free."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trax-passwords")
        self._waiting: Counter[bool] = Counter()
        """By whether they are the first of their networks."""
        self._waiting_from: Counter[str] = Counter()

    @contextmanager
    def queue(self, networks: Sequence[str], *, is_first: bool) -> Generator[None]:
        """Count a login while it waits; raises TooManyChecks if too many do, in total or from one network.

        `networks` are those of its address. One that has not failed before (`is_first`) finds places that
        others cannot take.
        """
        is_full = self._waiting.total() >= WAITING_AT_MOST
        has_no_place = not is_first and self._waiting[is_first] >= WAITING_AFTER_FAILURES
        is_crowded = any(self._waiting_from[each] >= WAITING_FROM_ONE_ADDRESS for each in networks)
        if is_full or has_no_place or is_crowded:
            raise TooManyChecks
        self._waiting[is_first] += 1
        self._waiting_from.update(networks)
        try:
            yield
        finally:
            self._waiting[is_first] -= 1
            self._waiting_from.subtract(networks)
            self._waiting_from = +self._waiting_from

    async def is_right(self, password: str, configured: str) -> bool:
        return await self._run(partial(matches, password, configured))

    async def new_hash(self, password: str, cost_log2: int) -> str:
        return await self._run(partial(hash_password, password, cost_log2=cost_log2))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


CHECKS: Final = PasswordChecks()
"""One per process, because the memory limit is per process."""


def _digest(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=2**cost, r=block, p=parallel, maxmem=MEMORY_BYTES, dklen=HASH_BYTES
    )


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode()
