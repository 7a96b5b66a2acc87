"""The API server of `vdev.sim` alone, without a kubelet and a scheduler: `python -m bench.api_server KUBECONFIG`."""

import asyncio
import sys
from pathlib import Path

from vdev.sim.api.server import ApiServer


async def serve(kubeconfig: Path) -> None:
    """Write the kubeconfig file, and serve until the process is stopped."""
    async with ApiServer() as server:
        fresh = kubeconfig.with_suffix(".new")
        await asyncio.to_thread(fresh.write_text, server.kubeconfig())
        fresh.rename(kubeconfig)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
