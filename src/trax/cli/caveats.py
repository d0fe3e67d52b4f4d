"""Warnings about databases that do not fit how they are used, such as SQLite on several machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.host.roles import ProcessRole

if TYPE_CHECKING:
    from collections.abc import Iterable


def database_warnings(
    address: str, role: ProcessRole, *, processes: int = 1, other_hosts: Iterable[str] = ()
) -> list[str]:
    """The warnings for these servers on this database. `elsewhere`: other hosts with live workers."""
    if address.startswith("memory:"):
        return _in_memory(role)
    if not address.startswith("sqlite:"):
        return []
    found: list[str] = []
    if others := sorted(set(other_hosts)):
        found.append(
            f"workers on {', '.join(others)} also use the SQLite file {address}: SQLite is not safe on a "
            "shared file system, and jobs can be lost; use PostgreSQL for more than one machine"
        )
    if processes > 1 or role is not ProcessRole.ALL:
        found.append(
            f"several processes share the SQLite file {address}: only one can write at a time, they notice "
            "changes only by polling, and all must run on this machine; PostgreSQL has no such limits"
        )
    return found


def _in_memory(role: ProcessRole) -> list[str]:
    if role is ProcessRole.ALL:
        return ["memory:// keeps all data in this process: no other process sees it, and it is lost at exit"]
    return [f"memory:// is visible to this process only, so a {role} alone cannot run jobs on it"]
