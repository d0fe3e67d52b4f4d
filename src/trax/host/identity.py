"""Identify this process: host name, environment (Kubernetes, Lambda, …) and instance id."""

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

ENVIRONMENTS: Final = (
    ("AWS_LAMBDA_FUNCTION_NAME", "lambda", "AWS_LAMBDA_LOG_STREAM_NAME"),
    ("ECS_CONTAINER_METADATA_URI_V4", "ecs", "HOSTNAME"),
    ("ECS_CONTAINER_METADATA_URI", "ecs", "HOSTNAME"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes", "HOSTNAME"),
    ("WEBSITE_SITE_NAME", "azure-app-service", "WEBSITE_INSTANCE_ID"),
)
"""The variable that reveals an environment, its name, the variable with the instance id. First match wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Host, environment and instance of this process; detected once, when an app is created."""

    host: str
    environment: str
    instance_id: str
    labels: Mapping[str, str]

    @classmethod
    def detect(cls, settings: Settings, environment: Mapping[str, str] | None = None) -> Self:
        """Take the settings, and fill what they omit from the environment variables."""
        environment = os.environ if environment is None else environment
        host = _host_name()
        place, instance_id = _detect_environment(environment)
        return cls(
            host=host,
            environment=settings.host_environment or place,
            instance_id=settings.host_instance_id or instance_id or f"{host}-{os.getpid()}",
            labels=settings.host_labels,
        )


def _detect_environment(environment: Mapping[str, str]) -> tuple[str, str | None]:
    for variable, name, instance in ENVIRONMENTS:
        if environment.get(variable):
            return name, environment.get(instance)
    return "server", None


def _host_name() -> str:
    try:
        return socket.gethostname() or "unknown"
    except OSError:
        return "unknown"


@cache
def own_version() -> str:
    """The version of Trax; empty when it is not installed as a package."""
    try:
        return version("trax-scheduler")
    except PackageNotFoundError:
        return ""
