"""Pin every dependency with its hashes and without any address; or check that the pins are current.

Current means: resolving today's `pyproject.toml`, with the pins as they are preferred, gives
the same packages in the same versions. Newer releases alone do not make a lock stale.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent
LOCKS = {
    "uv.txt": ["requirements/uv.in"],
    "dev.txt": [
        "pyproject.toml",
        "--group",
        "dev",
        "--extra",
        "fast",
        "--extra",
        "localpg",
        "--extra",
        "web",
        "--extra",
        "http",
        "--extra",
        "otel",
        "--extra",
        "secrets",
        "--extra",
        "sqs",
    ],
    "core.txt": ["pyproject.toml"],
    "extras.txt": ["pyproject.toml", "--all-extras", "--constraint", "requirements/core.txt"],
    "bench.txt": ["requirements/bench.in"],
    "docs.txt": ["requirements/docs.in"],
}


def main(arguments: list[str]) -> None:
    if "--check" in arguments:
        stale = [name for name in LOCKS if not is_current(name)]
        if stale:
            sys.exit(f"out of date: {', '.join(stale)}. Run `make locks` and commit what it changes.")
        return
    for name in LOCKS:
        resolve(name, HERE / name, *(["--upgrade"] if "--upgrade" in arguments else []))


def is_current(name: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / name
        shutil.copy(HERE / name, copy)
        resolve(name, copy)
        return pins(copy) == pins(HERE / name)


def resolve(name: str, target: Path, *options: str) -> None:
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", *LOCKS[name]]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes"]
    command += [
        "--no-emit-index-url",
        "--no-header",
        "--no-annotate",
        "--quiet",
        "--output-file",
        str(target),
    ]
    subprocess.run([*command, *options], check=True, cwd=PROJECT, stdout=subprocess.DEVNULL)


def pins(lock: Path) -> list[str]:
    """The lock without its hashes: a wheel added later to a pinned release changes nothing for us."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return [line.rstrip("\\ ") for line in lines if line and not line.startswith((" ", "#"))]


main(sys.argv[1:])
