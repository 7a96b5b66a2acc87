"""What a configuration does not ask for is not imported, though it is a part of the agent."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.kit.once import once

RUN = """
import asyncio, json, sys
from pathlib import Path
from vdev.agent.agent import Agent
from vdev.cli import options, parsed
from vdev.cli import run
from vdev.sim import Kubelet

async def main(root):
    flags = ["--config-file", f"{root}/vdev.yaml", "--kubelet-dir", f"{root}/k", "--cdi-dir", f"{root}/cdi"]
    flags += ["--run-dir", f"{root}/run", "--state-dir", f"{root}/state", "--host-root", f"{root}/h"]
    flags += ["--features-dir", f"{root}/features", "--node-name", "n"]
    agent = Agent(run.agent_options(options.read(parsed(["run", *flags]), {})))
    async with Kubelet(Path(root) / "k") as kubelet, asyncio.TaskGroup() as group:
        task = group.create_task(agent.run())
        await kubelet.wait_until(lambda: agent.turns > 1 and kubelet.listed().get("acme.dev/npu"), what="the devices")
        agent.stop()
        await task
    print(json.dumps({"modules": sorted(sys.modules), "status": agent.node_api.document()}))

asyncio.run(main(sys.argv[1]))
"""
PLAIN = "devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 2}}]\n"
HEAVY = ("vdev.kube.connection", "lightkube", "starlette", "uvicorn")


def ran(config):
    """What is imported after a life with this configuration, of what nobody needs but who asks; and the status."""
    with tempfile.TemporaryDirectory(prefix="vd-") as directory:  # pytest's are too long for the path of a socket
        return _ran(Path(directory), config)


def _ran(directory, config):
    (directory / "vdev.yaml").write_text(config)
    (directory / "h" / "dev").mkdir(parents=True)
    (directory / "k" / "device-plugins").mkdir(parents=True)
    command = [sys.executable, "-c", RUN, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    names = [name for name in found["modules"] if any(f"{name}.".startswith(f"{each}.") for each in HEAVY)]
    return names, found["status"]


@pytest.fixture
def plain():
    """A life with nothing but devices."""
    return once(f"imports of {PLAIN}", lambda: ran(PLAIN))


def test_devices_alone_import_neither_client_nor_web_server(plain):
    """Each takes several MiB."""
    assert [] == plain[0]


@pytest.mark.long
def test_whoever_asks_gets_it(plain):
    """Labels for a file need no API server's library; the status has the same keys, before and after."""
    names, status = ran("node: {labels: nfd}\n" + PLAIN)
    assert [] == names
    assert (status["features"]["file"] or "/features/vdev").endswith("/features/vdev")
    assert status | {"features": {"file": None}} == plain[1]
