"""The page on failure testing: its configurations are valid, and its commands and its program run."""

import asyncio
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kit import forkserver, reader
from tests.kit.process import send_signal
from vdev.agent import command_socket
from vdev.config import load_rules, load_text
from vdev.sim import Kubelet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failure-testing.md").read_text()
YAML = [block.text for block in reader.blocks(PAGE, "yaml")]
COMMANDS = re.findall(r"^\$ vdev (.*)$", PAGE, re.MULTILINE)
RUN, LIVE = (
    next(each for each in COMMANDS if each.startswith("run ")),
    [each for each in COMMANDS if "--run-dir run" in each and not each.startswith("run ")],
)


def test_configurations(subtests):
    """Each block is a configuration, or rules for the first one."""
    for text in YAML:
        with subtests.test(text=text):
            if "version" in yaml.safe_load(text):
                assert load_text(text).spec.faults.rules
            else:
                assert load_rules(text, "<page>", load_text(YAML[0]).spec)


def test_effects_in_the_table():
    """A rule accepts each effect in the table."""
    table = PAGE[PAGE.index("Each rule has one effect") : PAGE.index("The kubelet has no timeout for Allocate")]
    spec = load_text(YAML[0]).spec
    effects = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[2:]
    snippets = [each for cell in effects for each in re.findall(r"`([^`]+)`", cell)]
    key, checked = "", 0
    for snippet in snippets:
        if ":" not in snippet or snippet.endswith(":"):
            continue
        key = key if snippet.startswith("{") else snippet.partition(":")[0]
        rule = f"{key}: {snippet}" if snippet.startswith("{") else snippet
        rule += ", hang: true" if key == "rpc" else ""
        assert load_rules(f"{{name: x, {rule}}}", "<page>", spec)
        checked += 1
    assert checked > 15


@pytest.mark.long
async def test_commands(directory):
    """The plugin starts, and every other command succeeds."""
    (directory / "gpus.yaml").write_text(YAML[0])
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"}

    async def vdev(command):
        return await asyncio.create_subprocess_exec(
            *(forkserver.python(), "-m", "vdev", *shlex.split(command)),
            cwd=directory,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async with Kubelet(directory / "kubelet") as kubelet:
        plugin = await vdev(RUN)
        try:
            await kubelet.wait_until(lambda: kubelet.node().allocatable.get("nvidia.com/gpu") == 4)
            device = await _first_device(directory / "run")
            for command in LIVE:
                process = await vdev(command.replace("GPU-ID", device))
                output, _ = await process.communicate()
                assert 0 == process.returncode, (command, output)
        finally:
            send_signal(plugin, signal.SIGTERM)
            await plugin.communicate()


async def _first_device(run_dir):
    status = await command_socket.ask(run_dir, {"do": "status"})
    return status["resources"][0]["devices"][0]["id"]


def test_program(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "program.py").write_text(reader.blocks(PAGE, "python")[0].text)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin", "TMPDIR": "/tmp"}
    done = subprocess.run(
        [forkserver.python(), "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
