"""Optional parts of the agent are not imported unless the configuration needs them."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
import asyncio, json, sys
from pathlib import Path
from vdev.agent.agent import Agent
from vdev.cli import options, parsed
from vdev.sim import Kubelet

async def main(root):
    flags = ["--config-file", f"{root}/vdev.yaml", "--kubelet-dir", f"{root}/k", "--cdi-dir", f"{root}/cdi"]
    flags += ["--run-dir", f"{root}/run", "--state-dir", f"{root}/state", "--host-root", f"{root}/h"]
    flags += ["--features-dir", f"{root}/features", "--node-name", "n"]
    agent = Agent(options.read(parsed(["run", *flags]), {}))
    async with Kubelet(Path(root) / "k") as kubelet, asyncio.TaskGroup() as group:
        task = group.create_task(agent.run())
        is_up = lambda: agent.pending.is_done.is_set() and kubelet.listed().get("acme.dev/npu")
        await kubelet.wait_until(is_up, what="the devices")
        agent.stop()
        await task
    print(json.dumps(sorted(sys.modules)))

asyncio.run(main(sys.argv[1]))
"""
PLAIN = "devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 2}}]\n"
HEAVY = ("httpx2", "lightkube", "starlette", "uvicorn")


def test_devices_alone_import_neither_client_nor_web_server():
    """Each takes several MiB."""
    with tempfile.TemporaryDirectory(prefix="vd-") as place:  # tmp_path is too long for a socket
        directory = Path(place)
        (directory / "vdev.yaml").write_text(PLAIN)
        (directory / "h" / "dev").mkdir(parents=True)
        (directory / "k" / "device-plugins").mkdir(parents=True)
        command = [sys.executable, "-c", RUN, place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert 0 == done.returncode, done.stderr
    modules = json.loads(done.stdout.splitlines()[-1])
    assert [] == [name for name in modules if any(f"{name}.".startswith(f"{each}.") for each in HEAVY)]
