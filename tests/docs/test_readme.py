"""The README's snippets run as written: files, commands, and servers in the background."""

import contextlib
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.kit import reader

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PATIENCE = 60.0


def blocks(mark):
    return [block for block in reader.blocks(README) if block.mark == mark]


@pytest.fixture
def shell(tmp_path, directory):
    """A directory with the README's files, and an environment in which `vdev` is this checkout."""
    for block in blocks("file"):
        (tmp_path / block.file).write_text(block.text)
    env = reader.environ(README, tmp_path) | {"VDEV_RUN_DIR": str(directory / "run"), "NODE_NAME": "readme"}
    return {"cwd": tmp_path, "env": env}


def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError, KeyError):
            if condition():
                return
        time.sleep(0.05)
    pytest.fail(f"waited {PATIENCE:g} s for {what}")


def test_every_block_is_tested():
    """Each has a marker, or is the block with make, or sample output."""
    marks = {"file", "run", "background", "install"}
    for block in reader.blocks(README):
        assert block.mark in marks or block.language == "text" or "make run" in block.text


def test_the_make_targets_exist():
    shown = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout
    (block,) = [each for each in reader.blocks(README) if "make run" in each.text]
    for target in re.findall(r"^make (\S+)", block.text, re.MULTILINE):
        assert re.search(rf"^{target} ", shown, re.MULTILINE)


def test_the_offline_commands_run(shell):
    for block in blocks("run"):
        for line in block.text.splitlines():
            done = subprocess.run(line, shell=True, capture_output=True, text=True, **shell)
            assert done.returncode == 0, f"{line}: {done.stderr}"


def test_the_sample_error(shell):
    text = (shell["cwd"] / "devices.yaml").read_text().replace("count:", "cuont:")
    (shell["cwd"] / "devices.yaml").write_text(text)
    done = subprocess.run("vdev validate devices.yaml", shell=True, capture_output=True, text=True, **shell)
    (sample,) = reader.blocks(README, "text")
    assert (2, True) == (done.returncode, sample.text.partition("allowed")[0] in done.stderr), done.stderr


@pytest.mark.long
def test_kubelet_and_plugin_in_two_terminals(shell, tmp_path, directory):
    """The plugin registers, follows an edit, and registers again with a restarted kubelet."""
    sim, run = (block.text.replace("/tmp/vdev-sim", str(directory / "k")).split() for block in blocks("background"))
    shim = shutil.which("vdev", path=shell["env"]["PATH"])

    def start(command):
        with (tmp_path / f"{command[1]}.log").open("ab") as log:
            return subprocess.Popen([shim, *command[1:]], stdout=log, stderr=log, **shell)

    def capacity():
        done = subprocess.run([shim, "status", "--output", "json"], capture_output=True, text=True, **shell)
        status = json.loads(done.stdout)
        return status["ready"] and {each["name"]: each["capacity"] for each in status["resources"]}

    running = [start(sim)]
    try:
        running.append(start(run))
        until(lambda: capacity() == {"acme.dev/npu": 2, "example.com/sink": 1}, "both resources")
        config = shell["cwd"] / "devices.yaml"
        config.write_text(config.read_text().replace("count: 2", "count: 5"))
        until(lambda: capacity()["acme.dev/npu"] == 5, "the edit")
        running[0].terminate()
        running[0].wait(PATIENCE)
        until(lambda: capacity() is False, "the kubelet's end")
        running[0] = start(sim)
        until(lambda: capacity() == {"acme.dev/npu": 5, "example.com/sink": 1}, "both resources after a restart")
    finally:
        for process in running:
            process.terminate()
        codes = [process.wait(PATIENCE) for process in running]
    assert [0, 0] == codes
