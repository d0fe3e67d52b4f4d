"""`trax secrets rotate`: bring all that is encrypted in the database under the first key."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trax.errors import DefinitionError
from trax.masking import SECRET, is_stored_secret
from trax.store import Store, secrets
from trax.store.migrations import ensure_current
from trax.store.url import has_no_file_yet
from trax.train.keyring import VARIABLE, Keyring, Seal, Unreadable, load_keyring
from trax.train.secrets import walk

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS_AT_ONCE: Final = 2000
PASSES: Final = 5
"""How often what somebody else held in that moment is tried again."""


@dataclass(slots=True)
class Rotation:
    """How many inputs were encrypted anew, how many need which other key, and how many were in use."""

    key_id: str
    rotated: int = 0
    unreadable: Counter[str] = field(default_factory=Counter[str])
    busy: int = 0


def rotate(address: str, on_progress: Callable[[str, int], None] = lambda _table, _rows: None) -> Rotation:
    """Encrypt all secrets anew that are not under the first key, page by page; servers may run meanwhile."""
    keyring = load_keyring()
    if keyring is None:
        raise DefinitionError(
            f"${VARIABLE} is not set; set it to the new key, a comma and the old ones, and rotate then"
        )
    if has_no_file_yet(address):
        return Rotation(keyring.first)
    store = Store(address)
    try:
        store.read(ensure_current)
        rotation = Rotation(keyring.first)
        for _ in range(PASSES):
            rotation.busy, rotation.unreadable = 0, Counter()
            for table in secrets.KEPT_IN:
                _rotate_table(store, table, keyring, rotation, on_progress)
            if not rotation.busy:
                break
        return rotation
    finally:
        store.close()


def _rotate_table(
    store: Store,
    table: str,
    keyring: Keyring,
    rotation: Rotation,
    on_progress: Callable[[str, int], None],
) -> None:
    after, seen = 0, 0
    while True:
        page = store.read(secrets.load_page, table, after=after, rows=ROWS_AT_ONCE)
        if page.last is None:
            return
        changes = {
            one: (old, new)
            for one, old in page.inputs.items()
            if (new := _reseal(old, keyring, rotation.unreadable)) != old
        }
        written = store.run(secrets.replace_inputs, table, changes) if changes else 0
        rotation.rotated += written
        rotation.busy += len(changes) - written
        after, seen = page.last, seen + len(page.inputs)
        on_progress(table, seen)


def _reseal(text: str, keyring: Keyring, unreadable: Counter[str]) -> str:
    """The same input under the first key, as far as its secrets can be read."""
    missing: set[str] = set()

    def change(found: dict[str, Any], _path: str, _place: str) -> Any:
        if not is_stored_secret(found):
            return found
        try:
            return {SECRET: keyring.reseal(found[SECRET])}
        except Unreadable:
            missing.add(_key_id(found[SECRET]))
            return dict(found)

    changed = walk(json.loads(text), change)
    unreadable.update(missing)
    return text if missing else json.dumps(changed, ensure_ascii=False, separators=(",", ":"))


def _key_id(stored: str) -> str:
    try:
        return Seal.parse(stored).key_id
    except Unreadable:
        return "unknown"
