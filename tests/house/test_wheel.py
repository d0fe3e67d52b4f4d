"""The wheel has everything and nothing else, and works where only it and what it needs is installed."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

import pytest
from tests.support.installing import PROJECT, Environment, built, unpacked

if TYPE_CHECKING:
    from pathlib import Path

LOCKED = ("celery", "http", "localpg", "otel", "sqs", "web")
"""The extras whose packages are pinned for our own tests."""

PARTS_OF_EXTRAS = ("trax.web", "trax.remote", "trax.worker.otel")
"""Where modules may need more than the core; whoever uses them from elsewhere asks for them politely."""

IMPORT_ALL = """
import importlib, pkgutil, trax

for module in pkgutil.walk_packages(trax.__path__, "trax."):
    if ".migrations.env" in module.name or ".versions." in module.name:
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as missing:
        print(module.name, missing.name.partition(".")[0])
"""
JOB = """
import asyncio, pathlib, trax
from trax import Trax

app = Trax("sqlite:///jobs.db")

@app.train
async def double(number: int) -> int:
    return 2 * number

async def main() -> None:
    async with app:
        entry = await app.queue(double, 21)
        print((await entry.wait(timeout=30)).output, "site-packages" in trax.__file__)

asyncio.run(main())
"""
LISTENING = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from trax import Trax

trace.set_tracer_provider(TracerProvider())
print(type(Trax("memory://").context.telemetry.now).__name__)
"""
SHOP = (PROJECT / "examples" / "fastapi_orders.py").read_text(encoding="utf-8")
SHOP_SAYS = """\
Mallory: 409, there are only 100 cups
Ada: Ada, your 2 cups are on their way
jobs: ['confirm 1: dispatched']
"""
DOORS = {
    "otel": (LISTENING, "Instruments"),
    "web": (f"{SHOP}\nprint(callable(Trax('memory://').web()))", SHOP_SAYS + "True"),
}
"""What an extra is for, as a program, and what it prints."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("core") / "venv", wheel, compiles=True)


def packed(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_all_of_the_package_and_nothing_else(wheel: Path) -> None:
    source = PROJECT / "src"
    files = {path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts}

    names = {name for name in packed(wheel) if ".dist-info/" not in name}

    assert names == {str(path.relative_to(source)) for path in files}
    assert {"trax/py.typed", "trax/store/migrations/versions/0001_initial.postgresql.sql"} <= names


def test_the_sdist_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    source = unpacked(built("sdist", tmp_path / "sdist"), tmp_path / "source")

    again = built("wheel", tmp_path / "again", source=source)

    assert packed(again) == packed(wheel)


def test_a_job_runs_with_the_core_alone(core: Environment, tmp_path: Path) -> None:
    assert core.python(JOB, tmp_path) == "42 True"


def test_only_parts_that_are_extras_need_more_than_the_core(core: Environment, tmp_path: Path) -> None:
    missing = [line.split() for line in core.python(IMPORT_ALL, tmp_path).splitlines()]

    assert missing
    assert [(module, name) for module, name in missing if not module.startswith(PARTS_OF_EXTRAS)] == []
    assert [(module, name) for module, name in missing if name == "trax"] == []


def test_the_module_is_the_command(core: Environment, tmp_path: Path) -> None:
    program = (
        "import runpy, sys; sys.argv = ['trax', '--version']; runpy.run_module('trax', run_name='__main__')"
    )

    ended = core.trax("--version", folder=tmp_path)

    assert (ended.returncode, core.python(program, tmp_path)) == (0, ended.stdout.strip())


def test_a_command_that_needs_an_extra_names_it(core: Environment, tmp_path: Path) -> None:
    address = ("--database-url", "sqlite:///jobs.db")
    assert core.trax("db", "migrate", *address, folder=tmp_path).returncode == 0

    ended = core.trax("dashboard", *address, folder=tmp_path)

    assert ended.returncode == 1
    assert re.fullmatch(
        r"trax: .* needs '\w+', which is not installed: pip install 'trax-scheduler\[web\]'\n", ended.stderr
    )


@pytest.mark.parametrize("extra", LOCKED)
def test_an_extra_brings_what_it_needs(extra: str, wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", wheel, extra)

    assert environment.python(BROUGHT.format(extra=extra), tmp_path) == "True"
    if extra in DOORS:
        program, printed = DOORS[extra]
        assert environment.python(program, tmp_path) == printed


BROUGHT = """
import re
from importlib.metadata import requires, version

wanted = [one for one in requires("trax-scheduler") if "extra == '{extra}'" in one]
print(bool(wanted) and all(version(re.match(r"[\\w.-]+", one)[0]) for one in wanted))
"""
