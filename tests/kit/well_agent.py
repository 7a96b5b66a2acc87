"""The HTTP server of a healthy agent."""

import asyncio
import contextlib

from prometheus_client import CollectorRegistry

from vdev.aio.tasks import in_background
from vdev.observe import http


@contextlib.asynccontextmanager
async def served(app, *, hosts=()):
    """Serve an application on a free port. Yields the address."""
    listener = await asyncio.to_thread(http.listen, "127.0.0.1:0")
    address = http.name_of(listener)
    async with in_background(http.serve_on(listener, app, hosts), name="http"):
        yield address


def application(**answers):
    """Return the application of a healthy agent. `answers` replace its functions."""
    return http.application(**{"status": dict, "registry": CollectorRegistry, "not_ready": list} | answers)
