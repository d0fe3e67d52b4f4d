"""Who may enter the dashboard and the API, and what they may do there.

Programs send a token, people log in, or a function of yours says who is asking. Where nothing of that is
configured, only a browser enters that has opened a one-time link.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from trax.errors import DefinitionError, did_you_mean, shown
from trax.web.passwords import is_hash
from trax.web.peer import parse_networks

if TYPE_CHECKING:
    from starlette.requests import Request

TOKENS: Final = "TRAX_WEB_TOKENS"
USERS: Final = "TRAX_WEB_USERS"
SECRET: Final = "TRAX_WEB_SECRET"  # noqa: S105 - the name of a variable
ANONYMOUS: Final = "TRAX_WEB_ANONYMOUS"
TRUSTED_PROXIES: Final = "TRAX_WEB_TRUSTED_PROXIES"
OPEN_HEALTH: Final = "TRAX_WEB_OPEN_HEALTH"
LOCAL: Final = "local"
"""The name of an operator who entered by a link, or from this machine with `insecure_local`."""
SWITCH: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}
SHORTEST_SECRET: Final = 16
HOURS: Final = 12.0


class Role(StrEnum):
    """A viewer reads everything and changes nothing; an operator changes things, too."""

    VIEWER = "viewer"
    OPERATOR = "operator"

    @classmethod
    def named(cls, name: str) -> Self:
        try:
            return cls(name)
        except ValueError:
            hint = did_you_mean(name, cls) or f"; it is one of {', '.join(cls)}"
            raise DefinitionError(f"there is no role {name!r} in the control room{hint}") from None


class Means(StrEnum):
    """How it is known who asks."""

    TOKEN = "token"  # noqa: S105
    SESSION = "session"
    HOOK = "hook"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks. `session` is the secret of their session, if they have signed in, and `session_id` its id."""

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
    """What a program sends as `Authorization: Bearer …`."""

    secret: str = field(repr=False)
    role: Role = Role.VIEWER

    def __post_init__(self) -> None:
        if len(self.secret) < SHORTEST_SECRET:
            raise DefinitionError(
                f"the secret of a token needs {SHORTEST_SECRET} characters or more (got {len(self.secret)}); "
                'python -c "import secrets; print(secrets.token_urlsafe())" makes a good one'
            )
        object.__setattr__(self, "role", Role.named(self.role))


@dataclass(frozen=True, slots=True)
class User:
    """A person who logs in. The password is given as `trax dashboard --hash-password` prints it."""

    password: str = field(repr=False)
    role: Role = Role.VIEWER

    def __post_init__(self) -> None:
        if not is_hash(self.password):
            raise DefinitionError(
                "the password of a user is given as its hash, not as it is typed: "
                "make one with `trax dashboard --hash-password`"
            )
        object.__setattr__(self, "role", Role.named(self.role))


Said = Role | Visitor | None
Authorize = Callable[["Request"], Said | Awaitable[Said]]
"""Says which role somebody has who sends a request, or with a Visitor also their name; None: go away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may enter. `secret` signs the forms of the pages: give all servers behind one address the same one.

    Without a secret each process makes its own, and refuses forms that another one has shown.
    """

    tokens: Mapping[str, Token] = field(default_factory=lambda: MappingProxyType({}))
    users: Mapping[str, User] = field(default_factory=lambda: MappingProxyType({}))
    authorize: Authorize | None = None
    allow_anonymous: Role | bool = False
    """Let anybody in: as an operator (True), or in the role that is given."""
    secret: str | None = field(default=None, repr=False)
    session_hours: float = HOURS
    insecure_local: bool = False
    """Let every process of this machine in as an operator, as long as it talks to a loopback address."""
    trusted_proxies: Sequence[str] = ()
    """Addresses or networks of proxies whose `X-Forwarded-For`, `X-Forwarded-Proto` or `Forwarded` counts."""
    open_health: bool = False
    """Let anybody ask `/health`; `/health/live` is open in any case."""

    def __post_init__(self) -> None:
        if self.secret is not None and len(self.secret) < SHORTEST_SECRET:
            raise DefinitionError(f"the secret of sessions needs {SHORTEST_SECRET} characters or more")
        if not isinstance(self.allow_anonymous, bool):
            object.__setattr__(self, "allow_anonymous", Role.named(self.allow_anonymous))
        parse_networks(self.trusted_proxies)
        if self.insecure_local and self.trusted_proxies:
            raise DefinitionError(
                "insecure_local lets in whoever comes from this machine, which behind a proxy is everybody: "
                "leave out insecure_local or trusted_proxies"
            )

    @property
    def is_configured(self) -> bool:
        """Whether anybody decided who may enter. If nobody did, a one-time link is the only way in."""
        chosen = (self.tokens, self.users, self.authorize, self.allow_anonymous, self.insecure_local)
        return any(map(bool, chosen))

    @property
    def anonymous(self) -> Role | None:
        """What somebody is who says nothing about themselves."""
        return Role.OPERATOR if self.allow_anonymous is True else self.allow_anonymous or None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """From variables: `TRAX_WEB_TOKENS=ci:operator:SECRET,…`, and users in the same way."""
        said = os.environ if environment is None else environment
        anonymous = said.get(ANONYMOUS, "")
        return cls(
            tokens={name: Token(text, role) for name, role, text in _parse_list(said, TOKENS)},
            users={name: User(text, role) for name, role, text in _parse_list(said, USERS)},
            secret=said.get(SECRET) or None,
            allow_anonymous=Role.named(anonymous) if anonymous else False,
            trusted_proxies=tuple(filter(None, said.get(TRUSTED_PROXIES, "").replace(",", " ").split())),
            open_health=_parse_switch(said, OPEN_HEALTH),
        )

    def holder_of(self, secret: str) -> Visitor | None:
        """Whose token this is. Every token is compared, in the same time whatever was sent."""
        sent, found = sha256(secret.encode()).digest(), None
        for name, token in self.tokens.items():
            if hmac.compare_digest(sha256(token.secret.encode()).digest(), sent):
                found = Visitor(name, token.role, Means.TOKEN)
        return found


def _parse_switch(said: Mapping[str, str], variable: str) -> bool:
    value = said.get(variable, "")
    if value.lower() not in SWITCH:
        raise DefinitionError(f"${variable} must be true or false (got {shown(value)})")
    return SWITCH[value.lower()]


def _parse_list(said: Mapping[str, str], variable: str) -> list[tuple[str, Role, str]]:
    found: list[tuple[str, Role, str]] = []
    for number, word in enumerate(filter(None, said.get(variable, "").split(",")), 1):
        name, _, rest = word.strip().partition(":")
        role, colon, text = rest.partition(":")
        if not name or not colon:
            raise DefinitionError(
                f"${variable} must list name:role:secret, parted by commas; see number {number}"
            )
        found.append((name, Role.named(role), text))
    return found
