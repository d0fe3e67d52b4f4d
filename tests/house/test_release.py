"""What is said about a release: what it is made of, and what is known against it."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.installing import REQUIREMENTS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def release() -> Any:
    """The script of `make audit` and `make sbom`."""
    spec = importlib.util.spec_from_file_location("release", REQUIREMENTS / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report_of(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_a_known_vulnerability_is_named_and_fails_the_audit(
    release: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"id": "PYSEC-2027-1", "fix_versions": ["2.1"], "aliases": [], "description": ""}
    text = report_of(
        {"name": "good", "version": "1.0", "vulns": []},
        {"name": "bad", "version": "2.0", "vulns": [bad]},
        {"name": "private", "skip_reason": "not found"},
    )

    code = release.report([release.read_report("core.txt", text)])

    assert code == 1
    assert capsys.readouterr().out == (
        "core.txt: 2 packages audited, 1 unknown to the index, 1 vulnerabilities\n"
        "  bad 2.0: PYSEC-2027-1, fixed in 2.1\n"
    )


@pytest.mark.parametrize("text", ["", report_of({"name": "any", "skip_reason": "not found"})])
def test_an_audit_without_an_index_reports_that_it_audited_no_package(
    release: Any, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = release.report([release.read_report("core.txt", text)])

    assert code == 1
    assert "NOT AUDITED, no index with vulnerability data is reachable" in capsys.readouterr().out


def test_one_lock_that_was_not_audited_fails_the_audit(release: Any) -> None:
    good = report_of({"name": "good", "version": "1.0", "vulns": []})

    assert release.report([release.read_report("core.txt", good)]) == 0
    assert release.report([release.read_report(*each) for each in (("core.txt", good), ("dev.txt", ""))]) == 1


def test_every_lock_is_audited(release: Any) -> None:
    assert set(release.LOCKS) == {lock.name for lock in REQUIREMENTS.glob("*.txt")}


def test_the_extras_are_locked_and_listed(release: Any, tmp_path: Path) -> None:
    sbom = json.loads(release.build_extras_sbom(tmp_path).read_text(encoding="utf-8"))

    listed = {_canonical(one["name"]): one["version"] for one in sbom["components"]}
    pyproject = tomllib.loads(release.PYPROJECT.read_text(encoding="utf-8"))
    extras = pyproject["project"]["optional-dependencies"]
    wanted = {_canonical(re.split(r"[><=;\[]", each)[0]) for extra in extras.values() for each in extra}
    assert wanted <= listed.keys()
    assert listed.items() >= pins_of("core.txt").items()
    assert "file:" not in json.dumps(sbom)


def test_the_bill_of_materials_lists_the_pinned_core_and_nothing_else(release: Any, tmp_path: Path) -> None:
    sbom = json.loads(release.build_sbom(tmp_path).read_text(encoding="utf-8"))

    pins = pins_of("core.txt")
    listed = {_canonical(one["name"]): one["version"] for one in sbom["components"]}
    assert (sbom["bomFormat"], sbom["metadata"]["component"]["name"]) == ("CycloneDX", "trax-scheduler")
    assert {"sqlalchemy", "psycopg", "pydantic"} <= listed.keys()
    assert listed.items() <= pins.items()
    assert "file:" not in json.dumps(sbom)


def pins_of(name: str) -> dict[str, str]:
    lock = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return {
        _canonical(package): version
        for package, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE)
    }


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
