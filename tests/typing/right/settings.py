"""Settings, and the options of the applications that an app gives, as a type checker sees them."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from starlette.applications import Starlette

from trax import Trax
from trax.app.app import AsgiApplication
from trax.remote.http.endpoint import HttpEndpoint
from trax.settings import Settings
from trax.web import Access, Role, Token, WebLimits

app = Trax("memory://", max_active_jobs=None, heartbeat_interval=2, default_job_timeout=timedelta(minutes=5))
Trax("memory://", name="mine", polling_interval="500 ms", capture_logs="debug", metadata_cleanup_trains=["a"])

access = Access(tokens={"ci": Token("0123456789abcdef", Role.OPERATOR)})
dashboard = app.web(access=access, title="Trax", mask=["pin"], limits=WebLimits())
endpoint = app.http_endpoint("0123456789abcdef", concurrency=4, body_timeout=timedelta(seconds=5))

assert_type(dashboard, AsgiApplication)
assert_type(endpoint, HttpEndpoint)

outer = Starlette()
outer.mount("/trax", dashboard)
outer.mount("/runs", endpoint)


async def change() -> None:
    assert_type(await app.settings.update(max_active_jobs=50, default_retry_delay="90s"), Settings)
