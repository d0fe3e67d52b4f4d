"""What a type checker makes of the public surface.

Every file in `right/` must be free of errors. In `wrong/` each line that must be an error ends with
`# error: <rule>` (or several, with commas), and no other line may be one. A new case is a new file;
nothing is to be added here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT = sorted((HERE / "right").glob("*.py"))
WRONG = sorted((HERE / "wrong").glob("*.py"))
MARK = "# error: "

Errors: TypeAlias = set[tuple[int, str]]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Errors]:
    """All errors by file, from one run over both folders."""
    config = tmp_path_factory.mktemp("typing") / "pyrightconfig.json"
    config.write_text(json.dumps(_configuration()))
    checked = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--project", str(config), "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
    )
    report: dict[str, Any] = json.loads(checked.stdout)
    assert report["summary"]["filesAnalyzed"] == len(RIGHT) + len(WRONG)
    return _by_file(report["generalDiagnostics"])


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_correct_code_is_accepted(path: Path, errors: dict[Path, Errors]) -> None:
    assert errors.get(path, set()) == set()


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_wrong_code_is_refused_on_the_marked_lines_only(path: Path, errors: dict[Path, Errors]) -> None:
    expected = _marked(path)

    assert expected
    assert errors.get(path, set()) == expected


def _configuration() -> dict[str, Any]:
    return {
        "include": [str(HERE / "right"), str(HERE / "wrong")],
        "exclude": [],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
    }


def _marked(path: Path) -> Errors:
    lines = enumerate(path.read_text().splitlines(), start=1)
    marks = [(number, line.split(MARK)[1]) for number, line in lines if MARK in line]
    return {(number, rule.strip()) for number, rules in marks for rule in rules.split(",")}


def _by_file(diagnostics: list[dict[str, Any]]) -> dict[Path, Errors]:
    found: dict[Path, Errors] = {}
    for each in diagnostics:
        if each["severity"] == "error":
            place = (each["range"]["start"]["line"] + 1, each.get("rule", "syntax"))
            found.setdefault(Path(each["file"]), set()).add(place)
    return found
