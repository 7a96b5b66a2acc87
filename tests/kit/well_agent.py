"""What the HTTP side asks an agent, of one with which all is well."""

import asyncio
import contextlib

from prometheus_client import CollectorRegistry

from vdev.aio.tasks import in_background
from vdev.observe import http


@contextlib.asynccontextmanager
async def served(app, *, hosts=()):
    """Serve an application on a free port; the address."""
    listener = await asyncio.to_thread(http.listen, "127.0.0.1:0")
    address = http.name_of(listener)
    async with in_background(http.serve_on(listener, app, hosts), name="http"):
        yield address


class WellAgent:
    """Whatever is to be told otherwise is for the test to say."""

    def status(self):
        """Nothing."""
        return {}

    def registry(self):
        """No metrics."""
        return CollectorRegistry()

    def stalled(self):
        """It is not."""
        return ""

    def not_ready(self):
        """It is."""
        return []

    def stand_by(self):
        """It does not."""
        return ""
