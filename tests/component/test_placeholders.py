"""Placeholder nodes of virtual devices: device nodes, serial lines, files and directories."""

import asyncio
import json
import os
import stat

import pytest

from tests.kit.held_back import HeldBack
from vdev.hostfs import HostRoot
from vdev.sim import manifest

NPU = "acme.dev/npu"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")


OTHER = """
version: v1
devices: [{name: other, resource: acme.dev/other, virtual: {count: 1}}]
"""
PARTITIONED = (
    ", memory: 16Gi, partitioning: {slices: 4, profiles: {1x: {slices: 1, memory: 4Gi}}}}, "
    'partitions: {"0": [1x], "1": [1x]'
)


def config(node, count=1, strategy="envvar", name="acme", more=""):
    return f"""
version: v1
flags: {{migStrategy: mixed, plugin: {{deviceListStrategy: {strategy}}}}}
devices:
  - {{name: {name}, resource: {NPU}, virtual: {{count: {count}, node: {{{node}}}{more}}}}}
"""


def names(directory):
    """The names of the placeholders on the host."""
    return {path.name for path in (directory / "devices").iterdir() if not path.name.startswith(".")}


def numbers(path):
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode), os.major(found.st_rdev), os.minor(found.st_rdev)


@ROOT
@pytest.mark.parametrize(("like", "minor"), [("random", 8)])
async def test_a_device_node(kubelet, start_agent, directory, like, minor):
    """A container gets a node made by mknod, under the path of the template."""
    await start_agent(config(f'like: {like}, containerPath: "/dev/acme{{index}}", permissions: r', count=2))
    pod = await kubelet.run_pod(manifest("a", {NPU: 2}))
    nodes = pod.container().edits.devices
    assert {"/dev/acme0": "r", "/dev/acme1": "r"} == {each.container_path: each.permissions for each in nodes}
    made = directory / "devices" / "vdev-acme-0"
    assert str(made) in {each.host_path for each in nodes}
    assert (True, 1, minor) == numbers(made)
    assert 0o666 == stat.S_IMODE(made.stat().st_mode)


async def test_under_cdi_nothing_is_made_on_the_host(kubelet, start_agent, directory):
    """The specification has the node's type and numbers, and the runtime creates it."""
    agent = await start_agent(config("like: zero", strategy="[envvar, cdi-cri]"))
    pod = await kubelet.run_pod(manifest("a", {NPU: 1}))
    assert [] == list(pod.container().edits.devices)
    (spec,) = (json.loads(path.read_text()) for path in agent.cdi_dir.glob("*.json"))
    edits = next(each for each in spec["devices"] if each["name"] == "acme-0")["containerEdits"]
    node = {"path": "/dev/acme-0", "type": "c", "major": 1, "minor": 5, "permissions": "rw"}
    assert [node] == edits["deviceNodes"]
    assert not (directory / "devices").exists()


@ROOT
async def test_a_node_is_removed_after_its_device(kubelet, start_agent, shows, directory):
    """It stays while a pod holds the device. Files of others stay."""
    agent = await start_agent(config("like: null", count=2))
    (directory / "devices" / "mine").touch()
    await kubelet.run_pod(manifest("a", {NPU: 2}))
    await agent.has_named(kubelet, 2)
    agent.edit(config("like: null", count=1))
    await shows(NPU, 2, 1)
    assert (directory / "devices" / "vdev-acme-1").exists()
    await kubelet.delete_pod("a")
    await shows(NPU, 1, 1)
    await kubelet.wait_until(lambda: not (directory / "devices" / "vdev-acme-1").exists(), what="the removal")
    assert {"vdev-acme-0", "mine"} == names(directory)


@ROOT
async def test_leftovers_of_an_earlier_process_are_removed(kubelet, start_agent, directory):
    """Unused files are removed, and a wrong node is replaced."""
    devices = directory / "devices"
    devices.mkdir()
    (devices / "vdev-old-0").touch()
    (devices / "vdev-acme-0").touch()
    await start_agent(config("like: zero"))
    assert (True, 1, 5) == numbers(devices / "vdev-acme-0")
    await kubelet.wait_until(lambda: {"vdev-acme-0"} == names(directory), what="the removal")


@pytest.mark.parametrize(
    ("partitioning", "resource"),
    [("", NPU), (PARTITIONED, "acme.dev/mig-1x")],
    ids=["whole", "a partition"],
)
async def test_leftovers_stay_while_a_pod_holds_them(kubelet, start_agent, shows, directory, partitioning, resource):
    """The entry left the file while no agent ran. A container that restarts needs its file."""
    agent = await start_agent(config("file: text", count=2, more=partitioning))
    pod = await kubelet.run_pod(manifest("a", {resource: 1}))
    (held,) = (mount.host_path for mount in pod.container().edits.mounts if "vdev-acme" in mount.host_path)
    (other,) = {"vdev-acme-0", "vdev-acme-1"} - {held.rpartition("/")[2]}
    await agent.stop()
    await start_agent(OTHER)
    await kubelet.wait_until(lambda: not (directory / "devices" / other).exists(), what="the removal of the other")
    assert os.path.exists(held)
    await kubelet.delete_pod("a")
    await kubelet.wait_until(lambda: not os.path.exists(held), what="the removal")


async def test_a_placeholder_stays_while_an_allocation_may_return_it(kubelet, start_agent, directory):
    """A pod that is admitted while an edit removes the file can still mount it."""
    held = HeldBack(lambda plan: [each.virtual for each in plan.observed.inventory.resources[NPU].entries.values()])
    agent = await start_agent(config("file: text"), appliers=[held], look_at_holders=0.2)
    await kubelet.wait_until(lambda: agent.agent.holders.in_use.is_complete, what="a trusted answer about pods")
    agent.edit(config("file: text").replace(", node: {file: text}", ""))
    await held.reached.wait()
    pod = await kubelet.run_pod(manifest("a", {NPU: 1}))
    (mount,) = pod.container().edits.mounts
    held.go.set()
    await agent.settled(kubelet)
    assert os.path.exists(mount.host_path)
    await kubelet.delete_pod("a")
    await kubelet.wait_until(lambda: not names(directory), what="the removal")


# --- errors, files and lines ------------------------------------------------------------------------------------------


async def test_a_missing_capability(kubelet, start_agent, shows, monkeypatch):
    """The device is Unhealthy with the reason, and recovers by itself. Other devices are served."""

    def refused(*_args):
        raise PermissionError(1, "Operation not permitted")

    text = config("like: null") + "  - {name: other, resource: acme.dev/other, virtual: {count: 1}}\n"
    with monkeypatch.context() as patched:
        patched.setattr(os, "mknod", refused)
        agent = await start_agent(text)
        await shows("acme.dev/other", 1, 1)
        await shows(NPU, 1, 0)
        (slot,) = agent.agent.reconciler.advertised.resources[NPU].slots
        assert "Operation not permitted; vdev needs CAP_MKNOD, or a CDI strategy" in slot.health.reason
    if os.geteuid() == 0:
        await shows(NPU, 1, 1)


async def test_a_directory_that_cannot_be_written(kubelet, start_agent, shows, directory):
    """The device is Unhealthy with the reason."""
    (directory / "devices").touch()
    agent = await start_agent(config("file: x"))
    await shows(NPU, 1, 0)
    (slot,) = agent.agent.reconciler.advertised.resources[NPU].slots
    assert str(directory / "devices") in slot.health.reason
    assert any(each["event"] == "files for containers not made" for each in agent.logs)


async def test_a_file_has_its_content_and_keeps_changes(kubelet, start_agent, directory):
    """The content is rendered per device when the file is created. A restart keeps it, and an edit replaces it."""
    text = config('file: "I am {id}", containerPath: "/run/{id}", readOnly: true')
    agent = await start_agent(text)
    pod = await kubelet.run_pod(manifest("a", {NPU: 1}))
    (mount,) = pod.container().edits.mounts
    file = directory / "devices" / "vdev-acme-0"
    assert (str(file), "/run/acme-0", True) == (mount.host_path, mount.container_path, mount.read_only)
    assert "I am acme-0" == file.read_text()
    file.write_text("used")
    await agent.stop()
    agent = await start_agent(text)
    assert "used" == file.read_text()
    agent.edit(text.replace("I am", "now"))
    await kubelet.wait_until(lambda: file.read_text() == "now acme-0", what="the new content")


async def test_a_directory_has_its_files(kubelet, start_agent, directory):
    """The container gets a directory with files as a mount."""
    await start_agent(config('directory: {temp: "21", "name": "{name}"}'))
    pod = await kubelet.run_pod(manifest("a", {NPU: 1}))
    assert ["/dev/acme-0"] == [each.container_path for each in pod.container().edits.mounts]
    made = directory / "devices" / "vdev-acme-0"
    assert {"temp": "21", "name": "acme"} == {path.name: path.read_text() for path in made.iterdir()}


async def talk(path, data, size):
    """Write to a line as a container does, and read the answer."""
    handle = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        os.write(handle, data)
        heard = b""
        async with asyncio.timeout(20):
            while len(heard) < size:
                try:
                    heard += os.read(handle, 4096)
                except BlockingIOError:
                    await asyncio.sleep(0.005)
        return heard
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("node", "said", "heard"),
    [
        ("pty: echo", b"hello\r\n\x03", b"hello\r\n\x03"),
        ('pty: script, answers: {AT: OK, ATI: "vdev {id}"}', b"AT\r\nATI\rnonsense\n", b"OK\r\nvdev acme-0\r\n"),
    ],
)
async def test_a_line_answers(kubelet, start_agent, node, said, heard):
    """The mount is a terminal that answers as configured, also when it is opened again."""
    await start_agent(config(f'{node}, containerPath: "/dev/ttyV{{index}}"'))
    pod = await kubelet.run_pod(manifest("a", {NPU: 1}))
    (mount,) = pod.container().edits.mounts
    assert "/dev/ttyV0" == mount.container_path
    for _ in range(2):
        assert heard == await talk(mount.host_path, said, len(heard))


async def test_without_ptmx_the_device_is_unhealthy(kubelet, start_agent, shows, directory):
    """A host root without /dev/ptmx is the reason."""
    (directory / "host").mkdir()
    agent = await start_agent(config("pty: echo"), host=HostRoot(directory / "host"))
    await shows(NPU, 1, 0)
    (slot,) = agent.agent.reconciler.advertised.resources[NPU].slots
    assert "cannot make a serial line: cannot open /dev/ptmx: No such file or directory" == slot.health.reason


async def test_directories_and_files_are_created_atomically(kubelet, start_agent, shows, directory):
    """Half-made directories and files of a killed process are removed at the next start."""
    text = """
devices:
  - name: acme
    resource: acme.dev/npu
    virtual: {count: 1, node: {directory: {one: "1", two: "2"}, containerPath: "/run/{id}"}}
"""
    made = directory / "devices" / "vdev-acme-0"
    agent = await start_agent(text)
    assert {"one", "two"} == {path.name for path in made.iterdir()}
    await agent.stop()
    half = made.with_name(f".{made.name}.tmp")
    made.rename(half)
    (half / "two").unlink()
    agent = await start_agent(text)
    assert {made.name} == {path.name for path in made.parent.glob("*vdev-*")}
    assert {"one": "1", "two": "2"} == {path.name: path.read_text() for path in made.iterdir()}
    await agent.stop()
    (made / ".one.abc.tmp").write_text("1")
    (made / ".mine.abc.tmp").write_text("a container's")
    await start_agent(text)
    assert {"one", "two", ".mine.abc.tmp"} == {path.name for path in made.iterdir()}


WRITABLE = {
    "a directory": ("directory: {one: '1'}", lambda path: {each.name: each.read_text() for each in path.iterdir()}),
    "a file": ("file: '1'", lambda path: path.read_text()),
}


def write(path):
    """Change a placeholder as a container may."""
    if path.is_dir():
        (path / "secret").write_text("mine")
        (path / "one").write_text("mine")
    else:
        path.write_text("mine")


@pytest.mark.parametrize(("what", "restarts"), [*zip(WRITABLE, (False, True), strict=True)])
async def test_changes_of_a_pod_are_gone_before_the_next_pod(kubelet, start_agent, directory, what, restarts):
    """Also if no agent ran when the pod ended. A restarted container of the same pod finds its changes."""
    node, content = WRITABLE[what]
    agent = await start_agent(config(node))
    path = directory / "devices" / "vdev-acme-0"
    new = content(path)
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    write(path)
    written = content(path)
    await kubelet.restart_container("a")
    assert written == content(path) != new
    if restarts:
        await agent.stop()
    await kubelet.delete_pod("a")
    if restarts:
        agent = await start_agent(config(node))
    await kubelet.run_pod(manifest("b", {NPU: 1}))
    assert new == content(path)
    assert [] == kubelet.errors


async def test_changes_of_sharing_pods_stay_until_the_last_one_ends(kubelet, start_agent, shows, directory):
    """Two replicas of a device have one directory, which is recreated when no pod holds it."""
    sharing = "sharing: {timeSlicing: {resources: [{name: acme.dev/npu, replicas: 2}]}}"
    await start_agent(config("directory: {one: '1'}") + sharing)
    secret = directory / "devices" / "vdev-acme-0" / "secret"
    for name in "ab":
        await kubelet.run_pod(manifest(name, {NPU: 1}))
    secret.write_text("mine")
    await kubelet.delete_pod("a")
    await kubelet.run_pod(manifest("c", {NPU: 1}))
    assert secret.exists()
    for name in "bc":
        await kubelet.delete_pod(name)
    await kubelet.run_pod(manifest("d", {NPU: 1}))
    assert not secret.exists()
