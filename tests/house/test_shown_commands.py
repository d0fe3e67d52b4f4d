"""What the pages give to a shell, or to a process manager, can be read and names commands that exist."""

from __future__ import annotations

import json
import re
import shlex
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trax.cli import build_parser
from trax.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from configparser import SectionProxy

PROJECT = Path(__file__).parent.parent.parent
PAGE = (PROJECT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
GENERATED = PROJECT / "docs" / "reference" / "commands.md"
LIST = re.compile(r'\["trax", .*?\]')
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^(?:\$ )?(trax [a-z-]+.*)", re.MULTILINE)
ENDS_A_COMMAND = re.compile(r"\s+(#|\||>)")


def block(language: str) -> str:
    (only,) = (text for kind, text in BLOCK.findall(PAGE) if kind == language)
    return only


def is_understood(words: Sequence[str]) -> None:
    """Parse what follows `trax`, and run nothing."""
    build_parser().parse_args([*words], exit_on_error=False, print_error=False)


@pytest.fixture
def service() -> SectionProxy:
    unit = ConfigParser(interpolation=None)
    unit.read_string(block("ini"))
    assert unit.sections() == ["Unit", "Service", "Install"]
    return unit["Service"]


def test_the_unit_starts_commands_that_exist(service: SectionProxy) -> None:
    for option in ("ExecStartPre", "ExecStart"):
        program, *words = shlex.split(service[option])
        assert Path(program).name == "trax"
        is_understood(words)


def test_the_unit_signals_the_parent_alone_and_waits_longer_than_the_shutdown_timeout(
    service: SectionProxy,
) -> None:
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > Settings().shutdown_timeout.total_seconds()


@pytest.mark.parametrize("language", ["dockerfile", "yaml"])
def test_containers_start_commands_that_exist(language: str) -> None:
    commands = [json.loads(found) for found in LIST.findall(block(language))]

    assert commands
    for _, *words in commands:
        is_understood(words)


def shown_commands() -> list[str]:
    pages = {*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")} - {GENERATED}
    blocks = [found for page in pages for found in BLOCK.findall(page.read_text(encoding="utf-8"))]
    return sorted(
        {typed for kind, text in blocks if kind in {"", "sh", "console"} for typed in TYPED.findall(text)}
    )


@pytest.mark.parametrize("typed", shown_commands())
def test_a_command_that_a_page_shows_exists(typed: str) -> None:
    _, *words = shlex.split(ENDS_A_COMMAND.split(typed)[0])

    is_understood(words)
