"""`trax secrets …`: the key that secrets in inputs are encrypted with."""

from __future__ import annotations

import sys

from cyclopts import App

from trax.cli.operating import AsJson, DatabaseUrl  # noqa: TC001 - cyclopts reads them
from trax.cli.showing import say, show_json
from trax.host.secrets import rotate as rotate_all
from trax.store.url import chosen_url
from trax.train import keyring

secrets = App(name="secrets", help="The key that secrets in inputs are encrypted with.")


@secrets.command(name="generate-key")
def generate_key() -> None:
    """Print a new key for $TRAX_SECRET_KEY. It is kept nowhere: put it into your secret store."""
    say(keyring.generate_key())


@secrets.command
def rotate(*, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Encrypt all stored secrets anew, with the first key of $TRAX_SECRET_KEY.

    Servers may run meanwhile. Exits with 1 if some could not be read, or were in use all the time; run it
    again then. After it exits with 0, the other keys can be taken away.
    """
    done = rotate_all(chosen_url(database_url))
    is_whole = not done.unreadable and not done.busy
    if as_json:
        show_json(
            {"key": done.key_id, "rotated": done.rotated, "unreadable": done.unreadable, "busy": done.busy}
        )
        return 0 if is_whole else 1
    say(f"inputs encrypted anew with key {done.key_id}: {done.rotated}")
    for key, count in sorted(done.unreadable.items()):
        print(f"inputs that need key {key}, which $TRAX_SECRET_KEY does not have: {count}", file=sys.stderr)  # noqa: T201
    if done.busy:
        print(f"inputs that were in use, and are left: {done.busy}; run this again", file=sys.stderr)  # noqa: T201
    return 0 if is_whole else 1
