"""Whoever listens may break: that is told, and nothing else is affected."""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def harmless(tell: Callable[P, T]) -> Callable[P, T | None]:
    """The same, but what a span processor, an exporter or a reader raises is logged."""

    @wraps(tell)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return tell(*args, **kwargs)
        except Exception:
            logger.exception("telemetry failed; nothing else is affected")
            return None

    return guarded
