"""An API server in a process of its own that counts: `python -m bench.measured.counting_api KUBECONFIG COUNTS`.

It writes COUNTS a few times a second: the requests by verb, and when the first and the last that write came (Unix
time).
"""

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path

from vdev.sim.api.http_requests import Request
from vdev.sim.api.server import ApiServer

_EVERY = 0.1  # seconds
_READS = ("get", "list", "watch")


class CountingServer(ApiServer):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.first_write = self.last_write = 0.0

    async def admit(self, request: Request, _writer: asyncio.StreamWriter) -> None:
        """Count it."""
        self.asked[request.verb] += 1
        if request.verb not in _READS:
            self.last_write = time.time()
            self.first_write = self.first_write or self.last_write

    def tell(self, counts: Path) -> None:
        """Write the file."""
        fresh = counts.with_suffix(".new")
        fresh.write_text(
            json.dumps({"asked": self.asked, "firstWrite": self.first_write, "lastWrite": self.last_write})
        )
        fresh.rename(counts)


async def main(kubeconfig: Path, counts: Path) -> None:
    """Serve until ended."""
    async with CountingServer() as server:
        await asyncio.to_thread(kubeconfig.write_text, server.kubeconfig())
        while True:
            server.tell(counts)
            await asyncio.sleep(_EVERY)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
