"""The page of all settings is the settings in code."""

from __future__ import annotations

from tests.support.settings_page import PAGE, page


def test_the_page_of_settings_is_current() -> None:
    made_by = "python tests/support/settings_page.py"

    assert PAGE.read_text(encoding="utf-8") == page(), f"run `{made_by}`"
