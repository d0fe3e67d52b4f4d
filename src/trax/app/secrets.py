"""`trax secrets rotate`: encrypt all secrets in the database with the first key."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trax.engine.actor import record_audit
from trax.errors import DefinitionError
from trax.masking import SECRET_KEY, is_stored_secret
from trax.store import Store, secrets
from trax.store.migrations import ensure_current
from trax.store.url import has_no_file_yet
from trax.train.secrets import VARIABLE, Keyring, Seal, SealError, load_keyring, replace_objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.store import Connection

ROWS_PER_PAGE: Final = 2000
PASSES: Final = 5
"""Number of passes over rows that were locked."""


@dataclass(slots=True)
class Rotation:
    """Counts: inputs encrypted again, inputs that need another key (by key id), rows that were locked."""

    key_id: str
    rotated: int = 0
    unreadable: Counter[str] = field(default_factory=Counter[str])
    busy: int = 0


def rotate(address: str, on_progress: Callable[[str, int], None] = lambda _table, _rows: None) -> Rotation:
    """Encrypt all secrets with the first key, page by page; servers may run meanwhile."""
    keyring = load_keyring()
    if keyring is None:
        raise DefinitionError(
            f"${VARIABLE} is not set; set it to the new key, a comma and the old keys, then rotate"
        )
    if has_no_file_yet(address):
        return Rotation(keyring.primary_id)
    store = Store(address)
    try:
        store.read(ensure_current)
        rotation = Rotation(keyring.primary_id)
        for _ in range(PASSES):
            rotation.busy, rotation.unreadable = 0, Counter()
            for table in secrets.TABLES_WITH_INPUTS:
                _rotate_table(store, table, keyring, rotation, on_progress)
            if not rotation.busy:
                break
        store.run(_record, store, rotation)
        return rotation
    finally:
        store.close()


def _record(connection: Connection, store: Store, rotation: Rotation) -> None:
    after = {"rotated": rotation.rotated, "unreadable": rotation.unreadable, "busy": rotation.busy}
    record_audit(
        connection, "secrets.rotate", "secret", [rotation.key_id], now=store.now(connection), after=after
    )


def _rotate_table(
    store: Store,
    table: str,
    keyring: Keyring,
    rotation: Rotation,
    on_progress: Callable[[str, int], None],
) -> None:
    after, checked = 0, 0
    while True:
        page = store.read(secrets.load_page, table, after=after, rows=ROWS_PER_PAGE)
        if page.last is None:
            return
        changes = {
            row_id: (old, new)
            for row_id, old in page.inputs.items()
            if (new := _reseal(old, keyring, rotation.unreadable)) != old
        }
        written = store.run(secrets.replace_inputs, table, changes) if changes else 0
        rotation.rotated += written
        rotation.busy += len(changes) - written
        after, checked = page.last, checked + len(page.inputs)
        on_progress(table, checked)


def _reseal(text: str, keyring: Keyring, unreadable: Counter[str]) -> str:
    """The input encrypted with the first key; unchanged if a secret cannot be decrypted."""
    missing: set[str] = set()

    def reseal(node: dict[str, Any], _path: str, _place: str) -> Any:
        if not is_stored_secret(node):
            return node
        try:
            return {SECRET_KEY: keyring.reseal(node[SECRET_KEY])}
        except SealError:
            missing.add(_key_id(node[SECRET_KEY]))
            return dict(node)

    changed = replace_objects(json.loads(text), reseal)
    unreadable.update(missing)
    return text if missing else json.dumps(changed, ensure_ascii=False, separators=(",", ":"))


def _key_id(sealed_text: str) -> str:
    try:
        return Seal.parse(sealed_text).key_id
    except SealError:
        return "unknown"
