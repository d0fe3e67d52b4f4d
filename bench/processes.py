"""Processor time and memory of processes, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
TICKS: Final = os.sysconf("SC_CLK_TCK")
PARENT: Final = 1
USED: Final = slice(11, 13)
"""In its own code and in the kernel."""
USED_WITH_CHILDREN: Final = slice(11, 15)
"""The same, of its children that have ended."""


def cpu_seconds(*pids: int) -> float:
    """The processor time of these processes so far."""
    return sum(_seconds(_fields(pid), USED) for pid in pids)


def tree_cpu_seconds(root: int) -> float:
    """The processor time of a process and of all processes that it started, running or not."""
    return sum(_seconds(fields, USED_WITH_CHILDREN) for fields in _tree(root).values())


def tree_pids(root: int) -> list[int]:
    return list(_tree(root))


def parent_pid(pid: int) -> int:
    return int(_fields(pid)[PARENT])


def is_running(pid: int) -> bool:
    """Whether a thread of this process uses a processor or waits for one."""
    threads = (PROC / str(pid) / "task").glob("*/stat")
    return any(_state(thread) == "R" for thread in threads)


def megabytes(pid: int) -> float:
    resident = int((PROC / str(pid) / "statm").read_text().split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE") / 1e6


def _tree(root: int) -> dict[int, list[str]]:
    """The fields of a process and of all below it."""
    found: dict[int, list[str]] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = fields = _fields(int(folder.name))
            except OSError:  # it has ended meanwhile
                continue
            children[int(fields[PARENT])].append(int(folder.name))
    below = [root]
    for pid in below:
        below += children[pid]
    return {pid: found[pid] for pid in below if pid in found}


def _fields(pid: int) -> list[str]:
    return _split((PROC / str(pid) / "stat").read_text())


def _state(stat: Path) -> str:
    try:
        return _split(stat.read_text())[0]
    except OSError:  # it has ended meanwhile
        return "X"


def _split(stat: str) -> list[str]:
    """The fields after the name, which may contain any character."""
    return stat.rpartition(")")[2].split()


def _seconds(fields: list[str], which: slice) -> float:
    return sum(map(int, fields[which])) / TICKS
