"""Where this process runs: which machine, what kind of place, and which instance of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from trax.settings import Settings

PLACES: Final = (
    ("AWS_LAMBDA_FUNCTION_NAME", "lambda", "AWS_LAMBDA_LOG_STREAM_NAME"),
    ("ECS_CONTAINER_METADATA_URI_V4", "ecs", "HOSTNAME"),
    ("ECS_CONTAINER_METADATA_URI", "ecs", "HOSTNAME"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes", "HOSTNAME"),
    ("WEBSITE_SITE_NAME", "azure-app-service", "WEBSITE_INSTANCE_ID"),
)
"""The variable that gives a place away, its name, and the one with its instance. The first one counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Found out once, when an app is made."""

    host: str
    environment: str
    instance_id: str
    labels: Mapping[str, str]

    @classmethod
    def found(cls, settings: Settings, environment: Mapping[str, str] | None = None) -> Self:
        """What the settings say, and what the environment gives away where they say nothing."""
        environment = os.environ if environment is None else environment
        host = _machine()
        place, instance_id = _place(environment)
        return cls(
            host=host,
            environment=settings.host_environment or place,
            instance_id=settings.host_instance_id or instance_id or f"{host}-{os.getpid()}",
            labels=settings.host_labels,
        )


def _place(environment: Mapping[str, str]) -> tuple[str, str | None]:
    for sign, name, instance in PLACES:
        if environment.get(sign):
            return name, environment.get(instance)
    return "server", None


def _machine() -> str:
    try:
        return socket.gethostname() or "unknown"
    except OSError:
        return "unknown"


@cache
def own_version() -> str:
    """Which release of Trax this is; nothing where it was not installed."""
    try:
        return version("trax-scheduler")
    except PackageNotFoundError:
        return ""
