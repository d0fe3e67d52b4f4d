"""How `make docs` builds the pages into a site that can be searched. A link that leads nowhere fails it."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent.parent
LINK = re.compile(r"\]\((?!\w+:|\.\.)([\w./-]+)\.md(?:#[\w-]+)?\)")
INDEX = "docs/index"
OUTSIDE = re.compile(r"\]\((?!\w+:|#)([^)\s]*?)(#[^)\s]+)?\)")

project = "Trax"
pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
version = release = pyproject["project"]["version"]
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md"]
html_theme = "furo"
html_title = f"Trax {version}"
html_copy_source = False
myst_heading_anchors = 4
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # drawings, and snippets that leave something out
nitpicky = True


def add_contents(_app: Any, page: str, source: list[str]) -> None:
    """Let the indexes be the contents of the site: the sections, and the pages of each section."""
    if page == root_doc:
        sections = LINK.findall((PROJECT / f"{INDEX}.md").read_text(encoding="utf-8"))
        sections = [f"docs/{section}" for section in sections if section.endswith("/index")]
        source[0] += contents([INDEX, *sections], caption="Documentation") + contents(
            others(), caption="Project"
        )
    elif page.endswith("/index") and page != INDEX:
        source[0] += contents(list(dict.fromkeys(LINK.findall(source[0]))))


def contents(pages: list[str], caption: str = "") -> str:
    head = f":caption: {caption}\n" if caption else ""
    return "\n\n```{toctree}\n:hidden:\n" + head + "\n" + "\n".join(pages) + "\n```\n"


def others() -> list[str]:
    """The pages beside the README."""
    return [page.stem for page in sorted(PROJECT.glob("*.md")) if page.stem != root_doc]


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
