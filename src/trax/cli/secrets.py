"""`trax secrets …`: generate and rotate the key that encrypts secret inputs."""

from __future__ import annotations

import sys

from cyclopts import App

from trax.cli.operating import AsJson, DatabaseUrl  # noqa: TC001 - cyclopts reads them
from trax.cli.showing import say, show_json
from trax.host.secrets import rotate as rotate_all
from trax.store.url import choose_url
from trax.train import keyring

secrets = App(name="secrets", help="Generate and rotate the key that encrypts secret inputs.")


@secrets.command(name="generate-key")
def generate_key() -> None:
    """Print a new key for $TRAX_SECRET_KEY. It is not stored: put it into your secret store."""
    say(keyring.generate_key())


@secrets.command
def rotate(*, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Re-encrypt all stored secrets with the first key of $TRAX_SECRET_KEY.

    Servers can keep running. Exits with 1 if some inputs could not be read or were locked: run it again.
    After it exits with 0, the other keys can be removed.
    """
    done = rotate_all(choose_url(database_url))
    is_complete = not done.unreadable and not done.busy
    if as_json:
        show_json(
            {"key": done.key_id, "rotated": done.rotated, "unreadable": done.unreadable, "busy": done.busy}
        )
        return 0 if is_complete else 1
    say(f"inputs re-encrypted with key {done.key_id}: {done.rotated}")
    for key, count in sorted(done.unreadable.items()):
        print(f"inputs that need key {key}, which is not in $TRAX_SECRET_KEY: {count}", file=sys.stderr)  # noqa: T201
    if done.busy:
        print(f"inputs skipped because they were locked: {done.busy}; run this again", file=sys.stderr)  # noqa: T201
    return 0 if is_complete else 1
