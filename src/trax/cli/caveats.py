"""What a person should know before they rely on a database that is not made for what they do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.host.roles import Role

if TYPE_CHECKING:
    from collections.abc import Iterable


def caveats(address: str, role: Role, *, processes: int = 1, elsewhere: Iterable[str] = ()) -> list[str]:
    """What is doubtful about such servers on this database, a sentence each.

    `elsewhere` are other machines whose workers live.
    """
    if address.startswith("memory:"):
        return _in_memory(role)
    if not address.startswith("sqlite:"):
        return []
    found: list[str] = []
    if others := sorted(set(elsewhere)):
        found.append(
            f"workers on {', '.join(others)} use the SQLite file {address} too: SQLite is not safe on a "
            "shared file system, and work can be lost; use PostgreSQL for more than one machine"
        )
    if processes > 1 or role is not Role.ALL:
        found.append(
            f"several processes share the SQLite file {address}: they take turns at writing, hear of each "
            "other only by polling, and must be on this machine; PostgreSQL has none of these limits"
        )
    return found


def _in_memory(role: Role) -> list[str]:
    if role is Role.ALL:
        return ["memory:// keeps everything in this process: nobody else can see it, and it ends with it"]
    return [f"memory:// is seen by this process only, so a {role} on it has nobody to work with"]
