"""Log errors of telemetry code instead of raising them."""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def log_errors(function: Callable[P, T]) -> Callable[P, T | None]:
    """Decorate a function so that errors of span processors, exporters and readers are only logged."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception:
            logger.exception("telemetry failed; runs are not affected")
            return None

    return guarded
