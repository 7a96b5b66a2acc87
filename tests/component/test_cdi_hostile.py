"""A CDI directory with foreign files, lost or damaged files, or no space: the agent goes on and reports the reason."""

import asyncio
import contextlib
import json
import os

import pytest

from tests.kit.litter import litter
from vdev.sim import manifest

TWO = """
version: v1
flags: {plugin: {deviceListStrategy: cdi-cri}}
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}
  - {name: beta, resource: acme.dev/tpu, virtual: {count: 1}}
"""
NPU, TPU = "acme.dev/npu", "acme.dev/tpu"
FILE = "vdev-k8s.device-plugin.acme.dev-npu.json"


@pytest.fixture
def cdi(directory):
    """The CDI directory, before the agent starts."""
    path = directory / "cdi"
    path.mkdir()
    return path


def reasons(agent, name=NPU):
    """Why each device of the resource is Unhealthy."""
    return {slot.id: slot.health.reason for slot in agent.agent.reconciler.advertised.resources[name].slots}


async def test_foreign_files_do_not_matter(kubelet, start_agent, cdi, shows):
    """They are neither read nor changed."""
    litter(cdi, "")
    before = {path.name for path in cdi.iterdir()}
    agent = await start_agent(TWO, wait=False)
    await shows(NPU, 2, 2)
    await shows(TPU, 1, 1)
    assert before < {path.name for path in cdi.iterdir()}
    assert "" == agent.agent.cdi.trouble


async def test_damaged_files_of_vdev_are_replaced_or_removed(kubelet, start_agent, cdi, shows):
    """Everything under vdev's file names is removed, except a directory. The target of a link is not touched."""
    litter(cdi, "vdev-")
    (cdi / "vdev-env.json").write_text(json.dumps(document(containerEdits={"env": [1]})))
    (cdi / "vdev-nested.json").write_text(json.dumps(document(containerEdits={"env": ["A=1"], "hooks": nest(400)})))
    (cdi / "vdev-letter.json").write_text(json.dumps(document(kind="a/b")))
    (cdi / "precious").write_text("precious")
    (cdi / FILE).symlink_to("precious")
    os.mkfifo(cdi / FILE.replace("npu", "tpu"))
    await start_agent(TWO)
    await shows(NPU, 2, 2)
    await shows(TPU, 1, 1)
    left = {path.name for path in cdi.glob("vdev-*.json")}
    assert {FILE, FILE.replace("npu", "tpu"), "vdev-directory.json"} == left
    assert "precious" == (cdi / "precious").read_text()
    assert not (cdi / FILE).is_symlink()


def document(**changes):
    """A specification of vdev with one device and these changes."""
    kind = changes.pop("kind", "k8s.device-plugin.acme.dev/old")
    device = {"name": "old-0", "containerEdits": {"env": ["A=1"]}} | changes
    return {"cdiVersion": "0.3.0", "kind": kind, "devices": [device]}


def nest(depth):
    """Nested lists."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
@pytest.mark.parametrize("how", ["full", "read-only"])
async def test_without_room_for_a_specification_its_devices_are_unhealthy(
    kubelet, start_agent, directory, cdi, shows, how
):
    """They are never listed as Healthy before, and a pod can use them once the file is written."""
    await run("mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=10", "tmpfs", cdi)
    try:
        if how == "full":
            (cdi / "filler").write_bytes(bytes(64 * 1024))
        else:
            await run("mount", "-o", "remount,ro", cdi)
        agent = await start_agent(TWO, wait=False)
        await shows(NPU, 2, 0)
        await shows(TPU, 1, 0)
        error = "No space left on device" if how == "full" else "Read-only file system"
        assert all(error in reason for reason in reasons(agent).values())
        assert {0} == {entry.fields["healthy"] for entry in kubelet.journal.of("listed")}
        if how == "full":
            (cdi / "filler").unlink()
        else:
            await run("mount", "-o", "remount,rw", cdi)
        await shows(NPU, 2, 2)
        await shows(TPU, 1, 1)
        assert (await kubelet.run_pod(manifest("one", {NPU: 2}))).container().edits.cdi_devices
        await agent.stop()
    finally:
        await run("umount", cdi)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
async def test_without_room_for_an_edit_the_old_file_is_used(kubelet, start_agent, cdi, shows):
    """Only the devices that the old file lacks are Unhealthy."""
    await run("mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=10", "tmpfs", cdi)
    try:
        agent = await start_agent(TWO)
        before = (cdi / FILE).read_text()
        fill(cdi / "filler")
        agent.edit(TWO.replace("count: 2", "count: 3"))
        await shows(NPU, 3, 2)
        await shows(TPU, 1, 1)
        assert ["acme-2"] == [name for name, reason in reasons(agent).items() if "No space left on device" in reason]
        assert before == (cdi / FILE).read_text()
        agent.edit(TWO.replace("acme.dev/npu", "acme.dev/other"))
        await kubelet.wait_until(lambda: not (cdi / FILE).exists(), what="the file of what is gone to go")
        (cdi / "filler").unlink()
        await shows("acme.dev/other", 2, 2)
        await agent.stop()
    finally:
        await run("umount", cdi)


def fill(path):
    """Fill the file system."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


async def run(*command):
    """Run a command. Skips the test if it fails."""
    process = await asyncio.create_subprocess_exec(*map(str, command))
    if await process.wait():
        pytest.skip(f"{command[0]} needs more rights")


def truncate(path):
    """Empty a file."""
    path.write_text("")


def spoil(path):
    """Change one byte, but neither size nor modification time."""
    times = path.stat()
    path.write_bytes(path.read_bytes().replace(b"acme-0", b"acme-9"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replace_by_link(path):
    """Replace a file by a link to a copy."""
    copy = path.rename(path.with_name("copy"))
    path.symlink_to(copy.name)


def remove_directory(path):
    """Remove the whole directory, as when a node's /run is cleaned."""
    for each in path.parent.iterdir():
        each.unlink()
    path.parent.rmdir()


@pytest.mark.parametrize("harm", [os.unlink, truncate, spoil, replace_by_link, remove_directory])
async def test_deleted_or_damaged_files_are_restored(kubelet, start_agent, shows, harm):
    """This happens at once, without an edit or a restart."""
    agent = await start_agent(TWO)
    path = agent.cdi_dir / FILE
    sound = path.read_text()
    harm(path)
    await kubelet.wait_until(
        lambda: path.is_file() and not path.is_symlink() and path.read_text() == sound, what="repair"
    )
    await shows(NPU, 2, 2)
    assert (await kubelet.run_pod(manifest("one", {NPU: 2}))).container().edits.cdi_devices
