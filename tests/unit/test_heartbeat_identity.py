from __future__ import annotations

import os
import socket

import pytest

from trax.settings import Settings
from trax.worker.heartbeat import Identity

HERE = f"{socket.gethostname()}-{os.getpid()}"


@pytest.mark.parametrize(
    ("environment", "place", "instance"),
    [
        ({}, "server", None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "pod-7"}, "kubernetes", "pod-7"),
        (
            {
                "AWS_LAMBDA_FUNCTION_NAME": "sync",
                "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
                "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            },
            "lambda",
            "stream",
        ),
        ({"ECS_CONTAINER_METADATA_URI_V4": "http://", "HOSTNAME": "task-1"}, "ecs", "task-1"),
        ({"ECS_CONTAINER_METADATA_URI": "http://"}, "ecs", None),
        ({"WEBSITE_SITE_NAME": "shop", "WEBSITE_INSTANCE_ID": "i-1"}, "azure-app-service", "i-1"),
    ],
)
def test_a_process_finds_out_where_it_runs(
    environment: dict[str, str], place: str, instance: str | None
) -> None:
    found = Identity.detect(Settings(), environment)

    assert (found.environment, found.instance_id) == (place, instance or HERE)
    assert (found.host, found.labels) == (socket.gethostname(), {})


def test_settings_have_the_last_word() -> None:
    environment = {
        "TRAX_HOST_ENVIRONMENT": "bare-metal",
        "TRAX_HOST_INSTANCE_ID": "rack-3",
        "TRAX_HOST_LABELS": "zone=b, team=etl",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    }

    found = Identity.detect(Settings.load({}, environment), environment)

    assert (found.environment, found.instance_id) == ("bare-metal", "rack-3")
    assert found.labels == {"zone": "b", "team": "etl"}


def test_a_machine_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "")

    assert Identity.detect(Settings(), {}).host == "unknown"
