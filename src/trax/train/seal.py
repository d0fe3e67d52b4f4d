"""Seal secrets that came in plain text: into a queue without the code of their train, or past it.

A process that has the code of a train publishes which fields of its input cannot hold a secret. Whoever
enqueues without the code seals each value in all other fields. What somebody wrote into the queue as plain
text is sealed when it is claimed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from trax.errors import FieldError, InvalidInput
from trax.masking import HIDDEN, NOT_STORED, SECRET_KEY, is_stored_secret
from trax.train.secrets import NO_KEY, UNKNOWN, join_path, load_keyring

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

PlainFields: TypeAlias = "frozenset[str] | None"
"""The fields of an input that cannot hold a secret; None: the whole input cannot."""

ROLE: Final = "input"

NOBODY_KNOWS: Final = (
    "no live worker knows this train, so nobody knows which of these values is a secret; start a worker that "
    "has it, or queue the job with its code (--app, $TRAX_APP, or a dashboard with the app)"
)


def merge_fields(train: str, published: Iterable[Mapping[str, Any]]) -> PlainFields:
    """The fields that no live process takes for secret. Raises LookupError if none knows the train."""
    known = [each[train] for each in published if train in each]
    if not known:
        raise LookupError(train)
    lists = [frozenset(map(str, cast("list[Any]", each))) for each in known if isinstance(each, list)]
    return frozenset[str].intersection(*lists) if lists else None


def refuse_unknown(train: str, value: Any) -> None:
    """Refuse an input of a train that nobody knows, unless there is nothing in it that could be a secret."""
    if value is None or value in ({}, []):
        return
    raise InvalidInput(f"train {train!r}: invalid input", [FieldError("", NOBODY_KNOWS, HIDDEN)])


def seal_fields(value: Any, plain: Collection[str], train: str) -> Any:
    """A copy of an input with every value encrypted that is not in one of the plain fields.

    What is sealed already stays, and None is no secret. Raises InvalidInput if no key is configured.
    """
    errors: list[FieldError] = []

    def seal(node: Any, path: str, place: str) -> Any:
        sealed = _seal(node, train, place)
        if sealed is None or (isinstance(node, str) and node.startswith(HIDDEN)):
            errors.append(FieldError(path, NO_KEY if sealed is None else UNKNOWN, HIDDEN))
        return sealed

    sealed = _replace_leaves(value, seal, frozenset(plain))
    if errors:
        raise InvalidInput(f"train {train!r}: invalid input", errors)
    return sealed


def seal_or_mask_fields(value: Any, plain: Collection[str], train: str) -> Any:
    """The same for a record: without a key the values are masked."""
    return _replace_leaves(value, lambda node, _, place: _seal_or_mask(node, train, place), frozenset(plain))


def seal_paths(text: str, paths: Collection[str], train: str) -> str | None:
    """The JSON with the values at these paths encrypted, or masked without a key; None if all are already."""
    document = json.loads(text)
    sealed = _replace_leaves(
        document, lambda node, _, place: _seal_or_mask(node, train, place), only=frozenset(paths)
    )
    return None if sealed == document else _to_json(sealed)


def _replace_leaves(
    value: Any,
    change: Callable[[Any, str, str], Any],
    plain: frozenset[str] = frozenset(),
    *,
    only: frozenset[str] | None = None,
    path: str = "",
    place: str = "",
) -> Any:
    """A copy with `change` applied to each value that is no container, or to those at the paths `only`."""
    if value is None or is_stored_secret(value) or (path and path in plain):
        return value
    if only is not None and path in only:
        return change(value, path, place)
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {
                name: _replace_leaves(
                    each, change, plain, only=only, path=join_path(path, name), place=join_path(place, name)
                )
                for name, each in items
            }
        case list():
            return [
                _replace_leaves(
                    each, change, plain, only=only, path=join_path(path, str(n)), place=join_path(place, "*")
                )
                for n, each in enumerate(cast("list[Any]", value))
            ]
        case _:
            return change(value, path, place) if only is None else value


def _seal(node: Any, train: str, place: str) -> dict[str, str] | None:
    """The stored form of a secret; None without a key."""
    keyring = load_keyring()
    if keyring is None:
        return None
    return {SECRET_KEY: keyring.seal(_to_json(node), train, join_path(ROLE, place))}


def _seal_or_mask(node: Any, train: str, place: str) -> dict[str, str]:
    return _seal(node, train, place) or {SECRET_KEY: NOT_STORED}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
