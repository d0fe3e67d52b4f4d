"""Take out one guard of the code after the other: for each, the tests that are named for it must fail.

`make mutants` runs all; `make mutants ARGS="quick claim"` those with one of the words in their name, file or
tests; `--list` only prints them. All this happens in a copy of the tree, with a PostgreSQL server of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from tests.conftest import ROOM_BYTES, SHARED_MEMORY
from tests.mutations.mutation import ROOT, Mutation, load_mutations

from trax.testing import postgres
from trax.testing.postgres import URL_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

MAX_SECONDS = 180
"""A mutant whose tests take longer is not killed: a test must fail, not hang."""
LEFT_OUT = (".git", ".venv*", ".*_cache", "__pycache__", "dist", "node_modules", "*.egg-info")
FAILED = 1
"""The exit code of pytest when all tests ran and some failed."""


class Verdict(NamedTuple):
    """What became of a mutant."""

    is_killed: bool
    text: str


class PytestResult(NamedTuple):
    """What pytest said: its exit code (None: it took too long), the tests that failed, and its last lines."""

    code: int | None
    failed: list[str]
    output: str

    def has_failed(self, test: str) -> bool:
        """Whether the test failed, or one of its cases if none is named."""
        return any(each == test or each.startswith(f"{test}[") for each in self.failed)


class TreeCopy:
    """A copy of the tree in which one file at a time is changed."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "src"),
            URL_VARIABLE: server,
        }
        self._moments = count(1_000_000_000)

    def judge(self, mutation: Mutation) -> Verdict:
        """Run the tests of a mutation with the guard taken out."""
        with self._mutated(mutation):
            run = self.test(mutation.tests)
        if run.code is None:
            return Verdict(is_killed=False, text=f"no result after {MAX_SECONDS} s")
        passed = [test for test in mutation.tests if not run.has_failed(test)]
        if run.code not in {0, FAILED}:
            return Verdict(is_killed=False, text=f"pytest ended with {run.code}: {run.output}")
        if passed:
            return Verdict(is_killed=False, text=f"SURVIVED {', '.join(passed)}")
        return Verdict(is_killed=True, text="killed")

    def test(self, tests: Sequence[str], *, seconds: float | None = MAX_SECONDS) -> PytestResult:
        """Run these tests, for so long at most."""
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *tests]
        with subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return PytestResult(None, [], process.communicate()[0])
        lines = output.splitlines()
        failed = [
            line.split(" - ")[0].removeprefix("FAILED ") for line in lines if line.startswith("FAILED ")
        ]
        return PytestResult(process.returncode, failed, " | ".join(lines[-5:]))

    @contextmanager
    def _mutated(self, mutation: Mutation) -> Generator[None]:
        file = self._folder / mutation.file
        text = file.read_text(encoding="utf-8")
        self._write(file, mutation.change(text))
        try:
            yield
        finally:
            self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        """Write with a time of its own: Python finds compiled modules by whole seconds and size."""
        file.write_text(text, encoding="utf-8")
        moment = next(self._moments)
        os.utime(file, (moment, moment))


def main() -> int:
    arguments = _parse_arguments()
    mutations = [mutation for mutation in load_mutations() if mutation.has_word(arguments.words)]
    if not mutations:
        print(f"no mutation has one of the words {arguments.words}; --list prints all")
        return 2
    if arguments.list:
        for mutation in mutations:
            print(f"promise {mutation.promise:>2}  {mutation.file}  {mutation.name}")
        return 0
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > ROOM_BYTES:
        tempfile.tempdir = str(SHARED_MEMORY)
    with ExitStack() as stack:
        jobs = 1 if URL_VARIABLE in os.environ else arguments.jobs  # test databases on it have the same names
        copies = [stack.enter_context(_copy_tree()) for _ in range(jobs)]
        return _run(copies, mutations)


@contextmanager
def _copy_tree() -> Generator[TreeCopy]:
    with TemporaryDirectory(prefix="trax-mutants-") as folder, postgres() as server:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        yield TreeCopy(tree, server)


def _run(copies: Sequence[TreeCopy], mutations: Sequence[Mutation]) -> int:
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    whole = copies[0].test(tests, seconds=None)
    if whole.code != 0:
        print(f"without any mutation the tests do not pass: {', '.join(whole.failed) or whole.output}")
        return 2
    free = SimpleQueue[TreeCopy]()
    for copy in copies:
        free.put(copy)

    def judge(mutation: Mutation) -> bool:
        copy, began = free.get(), monotonic()
        try:
            verdict = copy.judge(mutation)
        finally:
            free.put(copy)
        seconds = f"{monotonic() - began:5.1f} s"
        print(f"{seconds}  promise {mutation.promise:>2}  {mutation.name}: {verdict.text}", flush=True)
        return verdict.is_killed

    with ThreadPoolExecutor(len(copies)) as threads:
        killed = sum(threads.map(judge, mutations))
    print(f"{killed} of {len(mutations)} mutants were killed")
    return 0 if killed == len(mutations) else 1


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="run only mutations with one of these words")
    parser.add_argument("--list", action="store_true", help="print the mutations")
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=jobs, help="how many at the same time (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
