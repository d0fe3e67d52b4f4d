"""What others must not read: names that stand for secrets, the values under them, and passwords in URLs.

Names are read by their words, so that `dbPassword` and `x-api-key` are secrets and `token_count` is not. URLs
are read as text and not parsed: a mistyped one holds a password just as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Self, TypeAlias, cast
from urllib.parse import unquote

HIDDEN: Final = "••••••"
"""What stands in the place of a value that must not be read."""
PASSWORD: Final = "***"  # noqa: S105
"""The same inside a URL, as SQLAlchemy spells it."""
SECRET: Final = "$secret"  # noqa: S105
"""The only key of a JSON object that stands for a secret value: encrypted, or not kept at all."""
NOT_KEPT: Final = "masked"
"""What a secret is stored as that was not to be kept."""

IsSecret: TypeAlias = Callable[[str], bool]

WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SECRET_WORD: Final = re.compile(
    "apikeys?|authorization|bearer|credentials?|jwt|passcode|passphrase|passwd|passwords?|passwort|pwd|secrets?|token"
)
JOINED: Final = re.compile(
    "password|passwd|passphrase|apikey|privatekey|secretkey|accesskey|authtoken|accesstoken|refreshtoken|"
    "clientsecret|sharedsecret"
)
"""What makes a secret also of a name whose words are not parted: `dbpassword`."""
PAIR: Final = re.compile(
    r"\b(?:(?:access|account|api|auth|encryption|master|private|secret|service|shared|signing|ssh) keys?"
    r"|(?:access|api|auth|bearer|csrf|refresh|session) tokens|(?:database|db|login|smtp|user) pass)\b"
)
HARMLESS_FIRST: Final = re.compile("has|is|max|min|needs|num|requires")
HARMLESS_LAST: Final = re.compile(
    "age|at|budget|counts?|enabled|endpoint|expires|expiry|field|in|kind|length|limits?|names?|policy|required|"
    "size|ttl|type|ur[il]|usage|used"
)
"""What a name begins or ends with that speaks about a secret and does not hold it: `token_count`."""
NAMED: Final = re.compile(r"""\b(\w+)=(b?'(?:\\.|[^'\\])*'|b?"(?:\\.|[^"\\])*"|[^\s,)\]}]+)""")


class SealedValue(str):
    """A secret in a record: text that hides it, and as `stored` the JSON object the database has for it."""

    __slots__ = ("stored",)
    stored: Mapping[str, Any]

    def __new__(cls, stored: Mapping[str, Any]) -> Self:
        made = super().__new__(cls, HIDDEN)
        made.stored = stored
        return made

    def __reduce__(self) -> tuple[type[SealedValue], tuple[Mapping[str, Any]]]:
        return SealedValue, (self.stored,)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is nobody's business."""
    words = [word.lower() for word in WORD.findall(name)]
    if words == ["listen", "url"]:
        return True
    if not (
        any(map(SECRET_WORD.fullmatch, words))
        or any(map(JOINED.search, words))
        or PAIR.search(" ".join(words))
    ):
        return False
    return not HARMLESS_FIRST.fullmatch(words[0]) and not HARMLESS_LAST.fullmatch(words[-1])


def hide_secrets(value: Any, is_secret: IsSecret = is_secret_name) -> Any:
    """The same value with dots in the place of what stands under such a name, at any depth.

    Whether there was a value stays visible: that one is missing is worth knowing.
    """
    match value:
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {
                key: HIDDEN if is_hidden(key, inner, is_secret) else hide_secrets(inner, is_secret)
                for key, inner in items
            }
        case list() | tuple():
            hidden = [hide_secrets(inner, is_secret) for inner in cast("Iterable[Any]", value)]
            return tuple(hidden) if isinstance(value, tuple) else hidden
        case _:
            return value


def hide_in_text(text: str) -> str:
    """The same for text that has `name='value'` in it, such as the repr of a model."""
    return NAMED.sub(lambda found: f"{found[1]}={HIDDEN}" if is_secret_name(found[1]) else found[0], text)


def is_hidden(key: Any, value: Any, is_secret: IsSecret = is_secret_name) -> bool:
    return value is not None and isinstance(key, str) and is_secret(key)


def is_stored_secret(value: Any) -> bool:
    """Whether this JSON value is one of the objects that stand for a secret in the database."""
    if not isinstance(value, dict) or len(cast("dict[Any, Any]", value)) != 1:
        return False
    stored = cast("dict[Any, Any]", value).get(SECRET)
    return isinstance(stored, str) and (stored == NOT_KEPT or stored.startswith("v1:"))


def cover_stored(value: Any) -> Any:
    """A JSON value as a record shows it: stored secrets are dots that know what they cover."""
    if is_stored_secret(value):
        return SealedValue(value)
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {key: cover_stored(inner) for key, inner in items}
        case list():
            return [cover_stored(inner) for inner in cast("list[Any]", value)]
        case _:
            return value


def uncover_stored(value: Any) -> Any:
    """The other way: what the database has for each secret that a record covers."""
    match value:
        case SealedValue():
            return dict(value.stored)
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {key: uncover_stored(inner) for key, inner in items}
        case list():
            return [uncover_stored(inner) for inner in cast("list[Any]", value)]
        case _:
            return value


AT: Final = "@\N{FULLWIDTH COMMERCIAL AT}\N{SMALL COMMERCIAL AT}"
SCHEME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)(:/*)")
PLAIN: Final = re.compile(
    r"""(?P<head>\s*[A-Za-z][\w+.-]*://(?:[^\s:@/?#\[\]]*(?P<password>:[^\s@/?#]*)?@)?)
        (?P<host>(?:\[[0-9A-Fa-f:.%\w]*\]|(?:[\w.~*-]|%2[Ff])*)(?::\d*)?
            (?:,(?:\[[0-9A-Fa-f:.]*\]|(?:[\w.~*-]|%2[Ff])*)(?::\d*)?)*)
        (?P<tail>(?:/[^\s@?]*)?(?:\?[^\s@]*)?)""",
    re.VERBOSE,
)
"""A URL as it should be: then it is certain where its password is."""
FIELD: Final = re.compile(r"([?&;])([^=&?;\s]+)=(.*?)(?=[&;][\w.%-]+=|$)", re.DOTALL)
WORD_VALUE: Final = re.compile(
    r"(?i)\b(\w*(?:password|passwd|passfile))(\s*=\s*)('(?:\\.|[^'\\])*(?:'|$)|[^\s&;]\S*)"
)


def mask_url(text: str) -> str:
    """A URL, or what was meant to be one, as it may be shown: without passwords, and without tokens.

    It may be of a database, as a URL or in the words of libpq (`host=… password=…`), or of an HTTP service.
    Where it is not certain what is a password, too much is hidden.
    """
    plain = PLAIN.fullmatch(text)
    if plain is None and "://" not in text and WORD_VALUE.search(text) and "@" not in text.partition("=")[0]:
        return WORD_VALUE.sub(rf"\1\2{PASSWORD}", text)
    if plain is not None:
        head = plain["head"]
        if plain["password"]:
            head = f"{head[: head.rindex(plain['password'])]}:{PASSWORD}@"
        return _mask_fields(f"{head}{plain['host']}{plain['tail']}")
    return _mask_fields(_mask_doubtful(text))


def _mask_doubtful(text: str) -> str:
    """Hide all that stands before the last `@`, or what follows a colon where a port would stand."""
    scheme = SCHEME.match(text)
    start = scheme.end() if scheme and (scheme[2] != ":" or len(scheme[1]) > 1) else 0
    if text[:start].lower().startswith("sqlite:///"):
        return text
    if start and scheme and "/" not in scheme[2] and not _is_known(scheme[1]):
        start = 0  # `user:password@host`: what looks like a scheme is a name
    head, rest = text[:start], text[start:]
    last = max((rest.rfind(at) for at in AT), default=-1)
    if last >= 0:
        return f"{head}{PASSWORD}@{rest[last + 1 :]}"
    encoded = rest.lower().rfind("%40")
    if encoded >= 0:
        return f"{head}{PASSWORD}@{rest[encoded + 3 :]}"
    return head + re.sub(r"^([^/?#\[\]]*?(?::|%3[Aa]))(?!\d*(?:[/?#]|$))[^?]*", rf"\1{PASSWORD}", rest)


def _is_known(scheme: str) -> bool:
    return scheme.lower().partition("+")[0] in {
        "postgres",
        "postgresql",
        "sqlite",
        "http",
        "https",
        "amqp",
        "redis",
    }


def _mask_fields(text: str) -> str:
    """Hide the parameters of a query whose names stand for secrets, whatever characters they hold."""

    def field(found: re.Match[str]) -> str:
        name = unquote(found[2])
        return f"{found[1]}{found[2]}={PASSWORD}" if is_secret_name(name) else found[0]

    return FIELD.sub(field, text)
