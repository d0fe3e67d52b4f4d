"""The Python a page shows, as one program: `python -m tests.support.snippets` runs what it is told to.

Each line of its input names a page, a folder to run it in and a file for what is said; it answers with an
exit code. A page runs in a fork of this process: it has a process for itself, and Trax is imported once.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

PROJECT = Path(__file__).parent.parent.parent
PRELOADED = (
    "trax.app.app",
    "trax.app.queue",
    "trax.app.manifests",
    "trax.server.start",
    "trax.testing.harness",
    "alembic.runtime.migration",
)
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def has_snippets(page: Path) -> bool:
    return SNIPPET.search(page.read_text(encoding="utf-8")) is not None


def compiled(page: Path) -> CodeType:
    """The page's snippets as one program, at the lines where they stand, so that a failure points there."""
    text = page.read_text(encoding="utf-8")
    body: list[ast.stmt] = []
    for snippet in SNIPPET.finditer(text):
        tree = ast.parse(snippet[1])
        ast.increment_lineno(tree, text[: snippet.start(1)].count("\n"))
        body += tree.body
    program = ast.Module(body, [])
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(program, str(page), "exec", flags, dont_inherit=True)  # pages import no __future__


class PageRunner:
    """The process that runs pages."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", __name__],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, page: Path, folder: Path) -> tuple[int, str]:
        """Run a page; returns its exit code and what it said."""
        assert self._process.stdin
        assert self._process.stdout
        said = folder / "said"
        print(page, folder, said, sep="\t", file=self._process.stdin, flush=True)
        code = self._process.stdout.readline()
        return int(code), said.read_text(encoding="utf-8")

    def stop(self) -> None:
        self._process.communicate(timeout=60)


def main() -> None:
    for module in PRELOADED:
        import_module(module)
    for line in sys.stdin:
        page, folder, said = map(Path, line.rstrip("\n").split("\t"))
        if not (pid := os.fork()):
            _run(page, folder, said)
            return
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def _run(page: Path, folder: Path, said: Path) -> None:
    output = os.open(said, os.O_WRONLY | os.O_CREAT)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    program = FunctionType(compiled(page), {"__name__": "page"})
    os.chdir(folder)
    running = program()
    if inspect.iscoroutine(running):
        asyncio.run(running)


if __name__ == "__main__":
    main()
