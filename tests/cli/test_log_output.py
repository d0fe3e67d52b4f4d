"""The log of a server without a terminal: one line per message, without control characters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import preloaded
from tests.support.preloaded import TRAX, PreloadedProcess

if TYPE_CHECKING:
    from pathlib import Path

JOBS = """
import logging
import warnings

from trax import Retry, Trax, every

app = Trax(polling_interval=0.1)

@app.train(retry=Retry(max_retries=0))
def complain(number: int) -> None:
    logging.getLogger("jobs").error("on \\x1b[31mfire\\nnow", extra={"number": number})
    warnings.warn("mind the gap")
    print("over", flush=True)
    raise RuntimeError("no luck")

app.schedule(complain, "complain-once", 7, every(hours=1))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    return tmp_path


def told(folder: Path, *words: str, **environment: str) -> str:
    """What a server says on standard error until one job has run and it was asked to end."""
    with PreloadedProcess(
        [TRAX, "run", "jobs.py:app", *words],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdout
        assert server.stdout.readline() == "over\n"
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=60)
    assert server.returncode == 0
    return said


def documents(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.parametrize(
    ("words", "environment"), [(["--log-format", "json"], {}), ([], {"TRAX_LOG_FORMAT": "json"})]
)
def test_every_line_is_a_json_document(folder: Path, words: list[str], environment: dict[str, str]) -> None:
    found = documents(told(folder, *words, **environment))

    messages = [one["message"] for one in found]
    assert any(said.startswith("all roles: 1 train and 1 schedule on sqlite:///") for said in messages)
    assert messages[-1] == "stopped"
    by_logger = {one["logger"]: one for one in found}
    jobs, runs = by_logger["jobs"], by_logger["trax.worker.job_runner"]
    assert (jobs["level"], jobs["message"]) == ("error", "on \x1b[31mfire\nnow")
    assert (jobs["extras"]["number"], jobs["extras"]["train"]) == (7, "complain")
    assert runs["message"].endswith("of train 'complain' failed: RuntimeError: no luck")
    metadata_id = jobs["extras"]["metadata_id"]
    assert runs["extras"] == {"metadata_id": metadata_id, "train": "complain", "attempt": 1}
    assert "mind the gap" in by_logger["py.warnings"]["message"]


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}])
def test_text_has_no_escape_codes(folder: Path, environment: dict[str, str]) -> None:
    said = told(folder, **environment)

    assert "\x1b" not in said
    assert r"ERROR jobs: on \x1b[31mfire\nnow metadata_id=" in said
    assert " INFO trax: all roles: 1 train" in said


def test_only_what_is_grave_enough_is_written(folder: Path) -> None:
    found = documents(told(folder, "--log-format", "json", "--log-level", "error"))

    assert [one["logger"] for one in found] == ["jobs"]


def test_an_app_that_sets_up_logging_keeps_it_unless_a_format_is_named(folder: Path) -> None:
    with (folder / "jobs.py").open("a", encoding="utf-8") as file:
        file.write('\nlogging.basicConfig(format="mine: %(message)s", level="ERROR")\n')

    assert told(folder).startswith("mine: on ")
    (folder / "trax.db").unlink()
    assert documents(told(folder, "--log-format", "json"))[-1]["message"] == "stopped"


def test_an_unknown_log_format_is_reported_in_one_line(folder: Path) -> None:
    ended = preloaded.run(
        [TRAX, "run", "jobs.py:app"], cwd=folder, env={**os.environ, "TRAX_LOG_FORMAT": "xml"}
    )

    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith('trax: Invalid value "xml" for TRAX_LOG_FORMAT')
