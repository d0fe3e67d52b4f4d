"""Every setting, its default and what it means. Frozen, and checked where it is made.

Values come from `Trax(...)`, then from `TRAX_…` environment variables, then from rows an
operator wrote: the later one wins.
"""

from __future__ import annotations

from trax.settings.kinds import Effective, SettingOrigin
from trax.settings.settings import PREFIX, Settings

__all__ = ["PREFIX", "Effective", "SettingOrigin", "Settings"]
