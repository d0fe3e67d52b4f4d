from __future__ import annotations

from typing import TYPE_CHECKING

from trax import Trax
from trax.store import workers
from trax.worker.worker import Worker

if TYPE_CHECKING:
    import pytest


async def test_a_worker_records_its_host_environment_and_labels(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HOSTNAME", "pod-7")
    app = Trax(url, host_labels={"zone": "b"})
    store = await app.context.store.open()

    worker = await Worker.start(app.context, store)

    (row,) = await store.ask(workers.load_list)
    assert row.host == app.context.identity.host
    assert (row.host_environment, row.host_instance_id) == ("kubernetes", "pod-7")
    assert row.host_labels == {"zone": "b"}
    await worker.unregister()
    app.close()
