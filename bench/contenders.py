"""The systems that are measured, and the environment of each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.children import PROJECT
from bench.servers import Storage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

PEERS: Final = PROJECT / ".venv-bench" / "bin" / "python"
NEWER: Final = PROJECT / ".venv-bench" / "newer" / "bin" / "python"
"""For peers that need a newer Python than Trax; they are measured with it, and the page says so."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """`adapter` is a module of `bench.adapters`; `share` makes a slow one drain fewer jobs."""

    name: str
    adapter: str
    package: str
    storage: Storage = "postgresql"
    python: Path = PEERS
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    share: float = 1.0

    def with_settings(self, **settings: Any) -> Contender:
        return replace(self, settings={**self.settings, **settings})

    @property
    def version(self) -> str | None:
        """Its version and that of its Python; None if it is not installed."""
        return _find_version(self.python, self.package)

    def arguments(self, url: str) -> tuple[str, ...]:
        return self.adapter, url, json.dumps(dict(self.settings))


TRAX: Final = Contender(
    name="Trax", adapter="trax_jobs", package="trax-scheduler", python=Path(sys.executable)
)
PGQUEUER: Final = Contender(name="PgQueuer", adapter="pgqueuer_jobs", package="pgqueuer")
ALL: Final = (
    TRAX,
    PGQUEUER,
    Contender(name="awa", adapter="awa_jobs", package="awa-pg"),
    Contender(name="Oban", adapter="oban_jobs", package="oban", python=NEWER, share=0.5),
    Contender(name="Procrastinate", adapter="procrastinate_jobs", package="procrastinate", share=0.1),
    Contender(name="DBOS", adapter="dbos_jobs", package="dbos", share=0.1),
    Contender(name="SAQ", adapter="saq_jobs", package="saq", storage="valkey", share=0.5),
    Contender(name="Celery", adapter="celery_jobs", package="celery", storage="valkey", share=0.5),
)


@cache
def _find_version(python: Path, package: str) -> str | None:
    if not python.exists():
        return None
    code = f"import sys, importlib.metadata as m; print(m.version({package!r}), *sys.version_info[:2])"
    found = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
    number, *python_version = found.stdout.split() or [""]
    return f"{number} on Python {'.'.join(python_version)}" if number else None


def available(contenders: Iterable[Contender], only: Collection[str] = ()) -> list[Contender]:
    """The chosen contenders that can be measured here; the others are printed with the reason."""
    found: list[Contender] = []
    for one in contenders:
        if only and one.name.lower() not in only:
            continue
        if one.version:
            found.append(one)
        else:
            place = one.python.parent.parent.relative_to(PROJECT)
            print(f"  {one.name} is not measured: it is not installed in {place} (run `make peers`)")
    return found
