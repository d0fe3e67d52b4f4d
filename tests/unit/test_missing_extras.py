from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from trax.errors import MissingExtra, import_extra

if TYPE_CHECKING:
    from pathlib import Path


def test_an_installed_extra_is_imported() -> None:
    assert import_extra("json.decoder", extra="web", feature="the dashboard") is sys.modules["json.decoder"]


def test_a_missing_extra_is_named_with_the_command_to_install_it() -> None:
    with pytest.raises(MissingExtra) as caught:
        import_extra("no_such_framework.core", extra="web", feature="the dashboard")

    assert str(caught.value) == (
        "the dashboard needs 'no_such_framework', which is not installed: pip install 'trax-scheduler[web]'"
    )
    assert (caught.value.extra, caught.value.module) == ("web", "no_such_framework")


def test_a_part_that_imports_what_is_missing_is_missed_by_the_name_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_part.py").write_text("import no_such_framework.core", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(MissingExtra, match="the engine needs 'no_such_framework'"):
        import_extra("a_part", extra="http", feature="the engine")


def test_a_missing_module_of_our_own_is_no_matter_of_installing() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"trax\.no_such_part"):
        import_extra("trax.no_such_part", extra="web", feature="the dashboard")
