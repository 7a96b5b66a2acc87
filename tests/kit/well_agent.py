"""The interface of a healthy agent for the HTTP server."""

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


class WellAgent:
    """A healthy agent; tests replace single answers."""

    def status(self):
        return {}

    def registry(self):
        return CollectorRegistry()

    def stalled(self):
        return ""

    def not_ready(self):
        return []

    def stand_by(self):
        return ""
