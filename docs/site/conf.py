"""How `make docs` builds the pages into a site that can be searched. A link that leads nowhere fails it."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent.parent
SECTION = re.compile(r"^## Where to read on\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([\w./-]+)\.md(?:#[\w-]+)?\)")
OUTSIDE = re.compile(r"\]\((?!\w+:|#)([^)\s]*?)(#[^)\s]+)?\)")

project = "Trax"
pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
version = release = pyproject["project"]["version"]
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/reference/*.md"]
html_theme = "furo"
html_title = f"Trax {version}"
html_copy_source = False
myst_heading_anchors = 4
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # drawings, and snippets that leave something out
nitpicky = True


def add_contents(_app: Any, page: str, source: list[str]) -> None:
    """Let the README's list of pages be the contents of the site, so that there is one list to keep."""
    if page == root_doc:
        pages = list(dict.fromkeys([*LINK.findall(contents(source[0])), *others()]))
        source[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def contents(readme: str) -> str:
    found = SECTION.search(readme)
    return found[1] if found else readme


def others() -> list[str]:
    """Pages that the README's list does not name one by one."""
    folders = [PROJECT / "docs", PROJECT / "docs" / "reference", PROJECT]
    pages = [path.relative_to(PROJECT) for folder in folders for path in sorted(folder.glob("*.md"))]
    return [str(page.with_suffix("")) for page in pages if page.stem != root_doc]


def name_files(_app: Any, page: str, source: list[str]) -> None:
    """A link to a file of the repository that is no page becomes its name: the site does not hold it."""
    folder = (PROJECT / page).parent

    def replace(link: re.Match[str]) -> str:
        target = folder / link[1]
        return (
            "]" if link[1] and target.exists() and target.suffix not in {".md", ".png", ".svg"} else link[0]
        )

    source[0] = OUTSIDE.sub(replace, source[0])


def add_index(app: Any, _error: Exception | None) -> None:
    """Servers look for index.html."""
    shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Any) -> None:
    app.connect("source-read", add_contents)
    app.connect("source-read", name_files)
    app.connect("build-finished", add_index)
