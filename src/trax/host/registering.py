"""The row of a worker that starts: who it is, where it runs, and what it can run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from trax.host.identity import own_version
from trax.store import workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trax.host.parts import Parts
    from trax.store import Connection, Store


def register(connection: Connection, store: Store, parts: Parts, own: Mapping[str, Any]) -> int:
    """`own` is what the worker says of itself; the rest is found out here."""
    columns = {
        "host": parts.identity.host,
        "host_environment": parts.identity.environment,
        "host_instance_id": parts.identity.instance_id,
        "host_labels": json.dumps(parts.identity.labels) if parts.identity.labels else None,
        "pid": os.getpid(),
        "version": own_version(),
        "app_version": parts.settings.app_version or "",
        **own,
    }
    return workers.register(connection, columns, now=store.now(connection))
