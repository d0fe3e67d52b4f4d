"""The Python a page shows, as one program: `python -m tests.support.snippets page folder` runs it there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
from pathlib import Path
from types import CodeType, FunctionType

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


def main(page: Path, folder: Path) -> None:
    program = FunctionType(compiled(page), {"__name__": "__main__"})
    os.chdir(folder)
    running = program()
    if inspect.iscoroutine(running):
        asyncio.run(running)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
