"""The tutorial pages: their commands run in order and print the shown output.

Without a cluster, its parts are checked as far as possible: charts are rendered and validated, and their configurations
are loaded.
"""

import asyncio
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

from tests.kit import forkserver, reader
from tests.kit.fakehost import FakeHost
from tests.kit.manifests import charted, helm, one, pod_of, validate
from tests.kit.process import send_signal
from vdev import config
from vdev.sim import Kubelet

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PATIENCE = 150
MARK = "==== block"


@dataclass(frozen=True)
class Journey:
    """A page: its text, its files by name, its command blocks with the shown output, and commands for a cluster."""

    text: str
    files: dict[str, str]
    typed: list[str]
    shown: list[str]
    cluster: list[str]


def journey(name, replaced=MappingProxyType({})):
    """The journey of a page, with some words replaced, such as ports that are in use."""
    text = (DOCS / name).read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    blocks = reader.blocks(text)
    typed, shown = [], []
    for block in blocks:
        if block.mark == "journey":
            typed.append(block.text)
            shown.append("")
        elif block.mark == "shows":
            shown[-1] += block.text
    return Journey(
        text=text,
        files={block.file: block.text for block in blocks if block.file},
        typed=typed,
        shown=shown,
        cluster=[block.text for block in blocks if block.mark == "cluster"],
    )


def free_address():
    """A free port of this host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def travelled(page, place, **environ):
    """Run the blocks of commands one after the other. Returns the output of each."""
    for name, text in page.files.items():
        (place / name).write_text(text)
    # Background jobs end with the journey.
    lines = ["set -eu", "trap 'for job in $(jobs -p); do kill $job; wait $job || true; done' EXIT"]
    for block in page.typed:
        lines += [f"echo '{MARK}'", block]
    (place / "home").mkdir()
    environ = reader.environ(page.text, place) | {"HOME": str(place / "home")} | environ
    process = subprocess.Popen(
        ["bash", "-c", "\n".join(lines)],
        cwd=place,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"not within {PATIENCE} s; so far:\n{output}")
    logs = "".join(f"\n{each.name}:\n{each.read_text()}" for each in place.glob("*.log"))
    assert 0 == process.returncode, output + logs
    return output.split(f"{MARK}\n")[1:]


def assert_shown(page, outputs):
    """Each shown line is in the output of its block, in this order; `…` matches any text."""
    assert len(page.typed) == len(outputs)
    for text, output in zip(page.shown, outputs, strict=True):
        squeezed = " ".join(output.split())
        for line in text.splitlines():
            pattern = ".*?".join(re.escape(" ".join(part.split())) for part in line.split("…"))
            found = re.search(pattern, squeezed)
            assert found, f"{line!r} is not in:\n{output}"
            squeezed = squeezed[found.end() :]


def words_of(block):
    """The commands of a block, split into words."""
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def installed(page):
    """The objects that the page's `helm install` creates with the page's files."""
    (command,) = [words for block in page.cluster for words in words_of(block) if words[:2] == ["helm", "install"]]
    _, _, release, chart, *flags = command
    assert "$VDEV/deploy/helm/vdev" == chart
    values = {}
    for flag, value in pairwise(flags):
        if flag == "--values":
            values |= yaml.safe_load(page.files[value])
        elif flag == "--set-file":
            key, _, name = value.partition("=")
            section, _, key = re.sub(r"\\\.", "\0", key).partition(".")
            values.setdefault(section, {})[key.replace("\0", ".")] = page.files[name]
    objects = charted(values, release=release)
    validate(objects)
    return objects


clients = pytest.mark.skipif(
    not (shutil.which("kubectl") and shutil.which("curl")), reason="kubectl or curl is not here"
)


@clients
@pytest.mark.long
@pytest.mark.timeout(PATIENCE + 60)
def test_gpus(directory):
    """From a file to pods, claims, metrics, a drill, a test and a fleet of ten nodes instead of 1,000."""
    pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")
    telemetry, status = free_address(), free_address()
    local = {
        '":9400"': f'"{telemetry}"',
        "127.0.0.1:9400": telemetry,
        "127.0.0.1:8080": status,
        "{000..999}": "{000..009}",
        "\n1000\n": "\n10\n",
    }
    page = journey("gpus.md", local)
    assert_shown(page, travelled(page, directory))


@helm
def test_gpus_on_kind():
    """The chart accepts the page's file, which is for kind's nodes, and configures the agent for it."""
    page = journey("gpus.md")
    objects = installed(page)
    assert {"default.yaml": page.files["gpus.yaml"]} == one(objects, "ConfigMap")["data"]
    spec = config.load_text(page.files["gpus.yaml"]).spec
    workers = [each for each in yaml.safe_load(page.files["kind.yaml"])["nodes"] if each["role"] == "worker"]
    names = [f"gpu-worker{number if number > 1 else ''}" for number in range(1, len(workers) + 1)]
    assert all(spec.on_node(name) for name in names)
    assert not spec.on_node("gpu-control-plane")
    assert "--enable-fault-injection" in pod_of(objects)["containers"][0]["args"]
    roles = {each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"}
    assert {"vdev-node-labels", "vdev-node-events"} <= roles
    validate(yaml.safe_load_all(page.files["pods.yaml"]))


HARDWARE = """
devices:
  usb1: {bus: usb, idVendor: 1d6b, idProduct: "0002", busnum: 1, devnum: 1}
  usb1/1-1: {bus: usb, idVendor: 10c4, idProduct: ea60, busnum: 1, devnum: 7, serial: "0001",
             node: {path: bus/usb/001/007, number: "189:6"}}
  usb1/1-1/1-1:1.0: {bus: usb, bInterfaceNumber: "00"}
  usb1/1-1/1-1:1.0/ttyUSB1: {bus: usb-serial, driver: cp210x}
  usb1/1-1/1-1:1.0/ttyUSB1/tty/ttyUSB1: {class: tty, node: {path: ttyUSB1, number: "188:1"}}
links:
  /dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0: ../../ttyUSB0
"""
NODES = {
    "ttyUSB0": "188:0",
    "snd/controlC0": "116:0",
    "snd/pcmC0D0c": "116:24",
    "snd/pcmC0D0p": "116:16",
    "snd/timer": "116:33",
    "dri/card0": "226:0",
    "dri/renderD128": "226:128",
}


class Machine(FakeHost):
    """A host with device nodes of the real numbers; nothing opens them."""

    def node(self, path, number="1:3", kind="char"):
        """A device node below /dev."""
        assert "char" == kind
        place = self.root / "dev" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, stat.S_IFCHR | 0o660, os.makedev(*map(int, number.split(":"))))


@pytest.fixture
def machine(directory):
    """A machine with the devices of the page."""
    if os.geteuid():
        pytest.skip("needs root, to make device nodes")
    host = Machine(directory / "host", real_nodes=True).add(HARDWARE)
    for path, number in NODES.items():
        host.node(path, number)
    return host


@clients
@pytest.mark.root
def test_edge(directory, machine):
    page = journey("edge.md")
    assert_shown(page, travelled(page, directory, VDEV_HOST_ROOT=str(machine.root)))


@helm
@pytest.mark.root
async def test_edge_on_k3s(directory, machine):
    """The chart's agent sees the host, and the page's pod gets the serial line at the path that it opens."""
    page = journey("edge.md")
    objects = installed(page)
    pod = pod_of(objects)
    assert {"default.yaml": page.files["devices.yaml"]} == one(objects, "ConfigMap")["data"]
    assert "--host-root=/host" in pod["containers"][0]["args"]
    shown = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each.get("readOnly")}
    assert {"/host/dev", "/host/sys"} <= shown
    (directory / "devices.yaml").write_text(page.files["devices.yaml"])
    manifest = yaml.safe_load(page.files["pod.yaml"])
    validate([manifest])
    async with Kubelet(directory / "kubelet") as kubelet:
        agent = await asyncio.create_subprocess_exec(
            *(forkserver.python(), "-m", "vdev", "run", directory / "devices.yaml", "--host-root", machine.root),
            *("--kubelet-dir", kubelet.root, "--run-dir", directory / "run", "--no-state"),
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await kubelet.wait_until(lambda: kubelet.node().allocatable.get("example.com/meter") == 1)
            status = await kubelet.run_pod(manifest)
        finally:
            send_signal(agent, signal.SIGTERM)
            await agent.wait()
    (device,) = status.container("reader").edits.devices
    assert ("/dev/ttyUSB0", "/dev/meter") == (device.host_path, device.container_path)
    assert device.container_path in manifest["spec"]["containers"][0]["command"][2]
    assert [] == kubelet.errors


MY_PLUGIN = """#!/bin/sh
# The page's hook creates this file in the watched directory.
[ "${3-}" = --watch ] && ln -sf broken "$4/0.broken"
exec "PYTHON" "ROOT/tests/kit/foreign_plugin.py" --socket-dir "$2" --state "${4-/nonexistent}"
"""


@pytest.mark.long
@pytest.mark.timeout(PATIENCE + 60)
def test_plugin_authors(directory):
    """Both commands for another plugin: the scenarios without hooks, and all scenarios with the page's hooks."""
    plugin = directory / "my-plugin"
    plugin.write_text(MY_PLUGIN.replace("PYTHON", forkserver.python()).replace("ROOT", str(ROOT)))
    plugin.chmod(0o755)
    commands = [
        line
        for block in reader.blocks((DOCS / "plugin-authors.md").read_text(), "sh")
        for line in block.text.replace("\\\n", " ").splitlines()
        if line.startswith("vdev sim --exec './my-plugin")
    ]
    outputs = travelled(Journey("", {}, commands, ["", ""], []), directory)
    assert 2 == len(commands) == len(outputs)
    plain, hooked = ({line.split(":")[0] for line in output.splitlines()} for output in outputs)
    assert {"registration", "pod", "kubelet-restart", "kubelet-crash", "plugin-restart", "plugin-crash"} <= plain
    assert "health" not in plain
    assert "health" in hooked
