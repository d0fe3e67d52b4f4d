"""All settings with their defaults. Frozen, and validated when created.

settings.py  the settings, one field each; the same as keyword arguments of `Trax(…)`
kinds.py     their types: bounds, and parsing of environment variables

Values come from `Trax(...)`, then from `TRAX_…` environment variables, then from rows that an operator wrote:
the later source wins.
"""

from __future__ import annotations

from trax.settings.kinds import Effective, SettingOrigin
from trax.settings.settings import OTHER_NAMES, PREFIX, SettingKeywords, Settings

__all__ = ["OTHER_NAMES", "PREFIX", "Effective", "SettingKeywords", "SettingOrigin", "Settings"]
