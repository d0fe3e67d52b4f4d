"""Mask secrets: values under names such as `password`, stored secrets, and passwords in URLs.

A name is split into words, so that `dbPassword` and `x-api-key` are secrets and `token_count` is not. URLs
are handled as text and not parsed: a mistyped URL may contain a password too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Self, TypeAlias, cast
from urllib.parse import unquote

HIDDEN: Final = "••••••"
"""Replaces a secret value."""
MAX_DEPTH: Final = 150
"""Values that are nested more deeply are not shown; JSON from outside has at most 100 levels."""
URL_MASK: Final = "***"
"""Replaces a password in a URL, as in SQLAlchemy."""
SECRET_KEY: Final = "$secret"  # noqa: S105
"""The only key of a JSON object that represents a stored secret: encrypted, or not stored at all."""
NOT_STORED: Final = "masked"
"""The value under `$secret` of a secret that was not to be stored."""

LONGEST_CACHED_NAME: Final = 256

IsSecret: TypeAlias = Callable[[str], bool]

WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SECRET_WORD: Final = re.compile(
    "apikeys?|authorization|bearer|cookies?|credentials?|creds?|dsn|jwt|passcode|passphrase|passwd|passwords?|"
    "passwort|pw|pwd|secrets?|token"
)
JOINED_WORDS: Final = re.compile(
    "password|passwd|passphrase|apikey|privatekey|secretkey|accesskey|authtoken|accesstoken|refreshtoken|"
    "clientsecret|sharedsecret|connectionstring|sessionid|authheader"
)
"""Finds secrets in names whose words are not separated: `dbpassword`."""
WORD_PAIR: Final = re.compile(
    r"\b(?:(?:access|account|api|auth|encryption|master|private|secret|service|shared|signing|ssh) keys?"
    r"|(?:access|api|auth|bearer|csrf|refresh|session) tokens|(?:database|db|login|smtp|user) pass"
    r"|auth headers?|connection strings?|session ids?)\b"
)
WHOLE_NAME: Final = re.compile(r"pass|listen url|(?:\w+ )*webhook urls?")
"""Names that would be harmless as a part of a longer one: `boarding_pass`."""
HARMLESS_FIRST: Final = re.compile("has|is|max|min|needs|num|requires")
HARMLESS_LAST: Final = re.compile(
    "age|at|budget|counts?|enabled|endpoint|expires|expiry|field|in|kind|length|limits?|names?|policy|required|"
    "size|ttl|type|ur[il]|usage|used"
)
"""First and last words of names that describe a secret but do not hold it: `token_count`."""
NAME_AND_VALUE: Final = re.compile(r"""\b(\w+)=(b?'(?:\\.|[^'\\])*'|b?"(?:\\.|[^"\\])*"|[^\s,)\]}]+)""")


class MaskedSecret(str):
    """A masked secret in a record; `stored` is the JSON object that the database has for it."""

    __slots__ = ("stored",)
    stored: Mapping[str, Any]

    def __new__(cls, stored: Mapping[str, Any]) -> Self:
        masked = super().__new__(cls, HIDDEN)
        masked.stored = stored
        return masked

    def __reduce__(self) -> tuple[type[MaskedSecret], tuple[Mapping[str, Any]]]:
        return MaskedSecret, (self.stored,)


def is_secret_name(name: str) -> bool:
    """Whether a value under this name is a secret."""
    # Names come from outside, in inputs: a long one is judged each time, and never kept.
    return _is_known_secret(name) if len(name) <= LONGEST_CACHED_NAME else _is_secret_name(name)


def _is_secret_name(name: str) -> bool:
    words = [word.lower() for word in WORD.findall(name)]
    if WHOLE_NAME.fullmatch(" ".join(words)):
        return True
    if not (
        any(map(SECRET_WORD.fullmatch, words))
        or any(map(JOINED_WORDS.search, words))
        or WORD_PAIR.search(" ".join(words))
    ):
        return False
    return not HARMLESS_FIRST.fullmatch(words[0]) and not HARMLESS_LAST.fullmatch(words[-1])


_is_known_secret: Final = lru_cache(maxsize=4096)(_is_secret_name)


def hide_secrets(value: Any, is_secret: IsSecret = is_secret_name, outer: tuple[int, ...] = ()) -> Any:
    """Replace the values under secret names by dots, and passwords in URLs, at any depth.

    None stays None, so that a missing value can be seen. A value that contains itself, or is nested too
    deeply, is replaced as well. `outer` are the ids of the values around this one.
    """
    if isinstance(value, str):
        return mask_urls(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if len(outer) >= MAX_DEPTH or id(cast("Any", value)) in outer:
        return HIDDEN
    around = (*outer, id(cast("Any", value)))
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {
            key: HIDDEN if is_hidden(key, inner, is_secret) else hide_secrets(inner, is_secret, around)
            for key, inner in items
        }
    hidden = [hide_secrets(inner, is_secret, around) for inner in cast("Iterable[Any]", value)]
    return tuple(hidden) if isinstance(value, tuple) else hidden


def hide_in_text(text: str) -> str:
    """Replace secrets in text with `name='value'` in it, such as the repr of a model."""
    return NAME_AND_VALUE.sub(
        lambda match: f"{match[1]}={HIDDEN}" if is_secret_name(match[1]) else match[0], text
    )


def is_hidden(key: Any, value: Any, is_secret: IsSecret = is_secret_name) -> bool:
    return value is not None and isinstance(key, str) and is_secret(key)


def is_stored_secret(value: Any) -> bool:
    """Whether this JSON value is an object that represents a secret in the database."""
    if not isinstance(value, dict) or len(cast("dict[Any, Any]", value)) != 1:
        return False
    stored = cast("dict[Any, Any]", value).get(SECRET_KEY)
    return isinstance(stored, str) and (stored == NOT_STORED or stored.startswith("v1:"))


def mask_stored(value: Any) -> Any:
    """Mask the stored secrets of a JSON value, for records."""
    if is_stored_secret(value):
        return MaskedSecret(value)
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {key: mask_stored(inner) for key, inner in items}
        case list():
            return [mask_stored(inner) for inner in cast("list[Any]", value)]
        case _:
            return value


def unmask_stored(value: Any) -> Any:
    """Replace each masked secret by the object that the database has for it."""
    match value:
        case MaskedSecret():
            return dict(value.stored)
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {key: unmask_stored(inner) for key, inner in items}
        case list():
            return [unmask_stored(inner) for inner in cast("list[Any]", value)]
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
"""A well-formed URL, in which the position of the password is certain."""
URL_IN_TEXT: Final = re.compile(r"[A-Za-z][\w+.-]{0,30}://[^\s\"'<>]*")
"""A URL in other text. Text comes from outside: an unbounded scheme would take quadratic time."""
CLEAR_PASSWORD: Final = re.compile(r"(://[^\s:/?#]*:)(?:[^\s/?#]+|(?!\d+[/?#])\S+)@")
"""The password of a URL in other text; a slash in it is one if no port number precedes it."""
SHORTEST_SEARCHED: Final = 4
"""Shorter secrets are not masked in other text: they match by accident."""
FIELD: Final = re.compile(r"([?&;])([^=&?;\s]+)=(.*?)(?=[&;][\w.%-]+=|$)", re.DOTALL)
WORD_VALUE: Final = re.compile(
    r"(?i)\b(\w*(?:password|passwd|passfile))(\s*=\s*)('(?:\\.|[^'\\])*(?:'|$)|[^\s&;]\S*)"
)


def mask_url(text: str) -> str:
    """Mask passwords and tokens in a URL, also in a malformed one.

    The URL may be of an HTTP service or of a database, also in libpq's form (`host=… password=…`). Where it
    is not certain which part is a password, too much is masked.
    """
    plain = PLAIN.fullmatch(text)
    if plain is None and "://" not in text and WORD_VALUE.search(text) and "@" not in text.partition("=")[0]:
        return WORD_VALUE.sub(rf"\1\2{URL_MASK}", text)
    if plain is not None:
        head = plain["head"]
        if plain["password"]:
            head = f"{head[: head.rindex(plain['password'])]}:{URL_MASK}@"
        return _mask_fields(f"{head}{plain['host']}{plain['tail']}")
    return _mask_fields(_mask_ambiguous(text))


def mask_urls(text: str) -> str:
    """Mask passwords and tokens of the URLs in a text, such as an input or a line of output."""
    if "://" not in text:
        return text
    return URL_IN_TEXT.sub(lambda match: _mask_clear_url(match[0]), text)


def _mask_clear_url(url: str) -> str:
    """The pattern searches no further than to the last `@`, where it ends: in all it takes linear time."""
    before, at, after = url.rpartition("@")
    return _mask_fields(CLEAR_PASSWORD.sub(rf"\1{URL_MASK}@", before + at) + after)


def holds_url_password(text: str) -> bool:
    return "://" in text and mask_urls(text) != text


def hide_passwords_of(urls: Iterable[str], text: str) -> str:
    """Mask in a text the passwords that these URLs hold, also if it shows only a part of a URL."""
    for url in urls:
        masked = mask_url(url)
        if masked == url:
            continue
        text = text.replace(url, masked)
        parts = map(re.escape, masked.split(URL_MASK))
        found = re.fullmatch("(.*)".join(parts), url, re.DOTALL)
        hidden = found.groups() if found else (url,)
        spellings = {each for secret in hidden for each in (secret, unquote(secret), repr(secret)[1:-1])}
        for secret in sorted(spellings, key=len, reverse=True):
            if len(secret) >= SHORTEST_SEARCHED:
                text = text.replace(secret, URL_MASK)
    return text


def _mask_ambiguous(text: str) -> str:
    """Mask everything before the last `@`, or after a colon that no port number follows."""
    scheme = SCHEME.match(text)
    start = scheme.end() if scheme and (scheme[2] != ":" or len(scheme[1]) > 1) else 0
    if text[:start].lower().startswith("sqlite:///"):
        return text
    if start and scheme and "/" not in scheme[2] and not _is_known_scheme(scheme[1]):
        start = 0  # `user:password@host`: what looks like a scheme is a user name
    head, rest = text[:start], text[start:]
    last = max((rest.rfind(at) for at in AT), default=-1)
    if last >= 0:
        return f"{head}{URL_MASK}@{rest[last + 1 :]}"
    encoded = rest.lower().rfind("%40")
    if encoded >= 0:
        return f"{head}{URL_MASK}@{rest[encoded + 3 :]}"
    return head + re.sub(r"^([^/?#\[\]]*?(?::|%3[Aa]))(?!\d*(?:[/?#]|$))[^?]*", rf"\1{URL_MASK}", rest)


def _is_known_scheme(scheme: str) -> bool:
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
    """Mask the query parameters with secret names, whatever characters their values have."""

    def mask_field(match: re.Match[str]) -> str:
        name = unquote(match[2])
        return f"{match[1]}{match[2]}={URL_MASK}" if is_secret_name(name) else match[0]

    return FIELD.sub(mask_field, text)
