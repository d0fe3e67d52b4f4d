"""What a release is made of, and what is known against it.

audit    known vulnerabilities of every pinned package, where an index that knows them is reachable
sbom     CycloneDX bills of materials: dist/trax-scheduler-VERSION.cdx.json of the wheel with the pinned core,
         and dist/trax-scheduler-extras-VERSION.cdx.json of all extras
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).parent.parent
REQUIREMENTS = PROJECT / "requirements"
LOCKS = ("core.txt", "extras.txt", "dev.txt", "uv.txt", "docs.txt", "bench.txt")
PYPROJECT = PROJECT / "pyproject.toml"
BIN = Path(sys.executable).parent


class Audit(NamedTuple):
    """What an index knows about the packages of one lock."""

    lock: str
    audited: int
    unknown: int
    findings: list[str]

    @property
    def line(self) -> str:
        if not self.audited:
            return f"{self.lock}: NOT AUDITED, no index with vulnerability data is reachable"
        skipped = f", {self.unknown} unknown to the index" if self.unknown else ""
        return f"{self.lock}: {self.audited} packages audited{skipped}, {len(self.findings)} vulnerabilities"


def main(verb: str, *arguments: str) -> None:
    if verb == "audit":
        audits = [read_report(lock, run_pip_audit(lock)) for lock in LOCKS]
        sys.exit(report(audits))
    elif verb == "sbom":
        folder = Path(arguments[0]) if arguments else PROJECT / "dist"
        sys.stdout.write(f"{build_sbom(folder)}\n{build_extras_sbom(folder)}\n")
    else:
        sys.exit(f"unknown verb {verb!r}; expected audit or sbom")


def run_pip_audit(lock: str) -> str:
    """The report of pip-audit, as JSON. It exits with 1 when it has found something."""
    command = [BIN / "pip-audit", "--requirement", REQUIREMENTS / lock, "--require-hashes", "--disable-pip"]
    ended = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout


def read_report(lock: str, text: str) -> Audit:
    """An empty report is that of an index which could not be reached."""
    packages: list[dict[str, Any]] = json.loads(text)["dependencies"] if text.strip() else []
    audited = [package for package in packages if "skip_reason" not in package]
    findings = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {_versions(found)}"
        for package in audited
        for found in package["vulns"]
    ]
    return Audit(lock, len(audited), len(packages) - len(audited), findings)


def report(audits: list[Audit]) -> int:
    """Print what was found; the exit code is 1 if something was, or if a lock was not audited at all."""
    for audit in audits:
        sys.stdout.write("\n  ".join([audit.line, *audit.findings]) + "\n")
    return int(any(audit.findings or not audit.audited for audit in audits))


def build_sbom(folder: Path) -> Path:
    """Install the wheel and the pinned core into an empty environment, and list what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"trax-scheduler-{_version()}.cdx.json"
    with tempfile.TemporaryDirectory() as place:
        python = Path(place) / "venv" / "bin" / "python"
        _run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, python.parent.parent)
        into = ("--quiet", "--python", python)
        _run(BIN / "uv", "pip", "sync", *into, "--require-hashes", REQUIREMENTS / "core.txt")
        _run(BIN / "python", "-m", "hatchling", "build", "--target", "wheel", "--directory", place)
        _run(BIN / "uv", "pip", "install", *into, "--no-deps", *Path(place).glob("*.whl"))
        how = ("--mc-type", "library", "--output-reproducible", "--output-file", target)
        _run(BIN / "cyclonedx-py", "environment", "--pyproject", PYPROJECT, *how, python)
    return target


def build_extras_sbom(folder: Path) -> Path:
    """List the pinned packages of all extras. They are not installed: a lock has all platforms in it."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"trax-scheduler-extras-{_version()}.cdx.json"
    how = ("--mc-type", "library", "--output-reproducible", "--output-file", target)
    _run(BIN / "cyclonedx-py", "requirements", "--pyproject", PYPROJECT, *how, REQUIREMENTS / "extras.txt")
    return target


def _version() -> str:
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["version"]


def _versions(found: dict[str, Any]) -> str:
    return " or ".join(found.get("fix_versions") or []) or "no version yet"


def _run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(*sys.argv[1:])
