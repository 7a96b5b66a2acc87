"""Xids in the kernel log, or in a file instead of it, in the form of NVIDIA's driver."""

import re

import pytest

from vdev.config import load_text
from vdev.errors import ConfigError
from vdev.hostfs import HostRoot

GPU = "nvidia.com/gpu"
READERS = {
    "node-problem-detector, all": r"NVRM: Xid \(PCI:[^)]+\): 79,.*",
    "node-problem-detector, fatal ones": r"NVRM: Xid \(PCI:[0-9a-f:.]+\): (48|63|64|74|79|92|94|95),",
    "node-problem-detector, with a program": r"NVRM: Xid \(PCI:[^)]+\): 79, pid='.*",
    "NVSentinel, XID": r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(?:, pid=[^,]*)?(?:, name=[^,]*)?, ",
    "gpud": r"NVRM: Xid.*?: (\d+),",
    "nixos test driver": r"NVRM: Xid \(PCI:.*\):.*",
}
"""Patterns of programs that read the kernel log; theirs are public, the names say whose."""
NVSENTINEL_GPU = re.compile(r"NVRM: GPU at PCI:([0-9a-fA-F:.]+): (GPU-[0-9a-fA-F-]+)")
SYSLOG = re.compile(r"^(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ kernel: \[ *\d+\.\d{6}\] (NVRM: .*)$")
"""As node-problem-detector's filelog plugin takes lines apart: 15 characters of time, then kernel and the message."""


def config(log, rules="[{name: fallen, devices: [a100/1], xid: 79}]", partitions=""):
    return f"""
version: v1
flags: {{migStrategy: mixed}}
devices:
  - {{name: a100, resource: {GPU}, virtual: {{preset: a100-sxm4-40gb, count: 2}}{partitions}}}
faults: {{kernelLog: {log}, rules: {rules}}}
"""


def said(log):
    """The lines of the file."""
    if not log.exists():
        return []
    found = [SYSLOG.match(line) for line in log.read_text().splitlines()]
    assert all(found)
    return [each[2] for each in found if each]


async def test_the_lines_of_an_xid(kubelet, start_agent, tmp_path):
    """A line names the GPU, and the next line has its Xid."""
    log = tmp_path / "kern.log"
    agent = await start_agent(config(log))
    await kubelet.wait_until(lambda: len(said(log)) == 2, what="the Xid")
    gpu, xid = said(log)
    assert xid == "NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    for whose, pattern in READERS.items():
        assert re.search(pattern, log.read_text()), whose
    place = NVSENTINEL_GPU.search(gpu)
    assert place
    ids = {slot.id for slot in agent.agent.reconciler.advertised.resources[GPU].slots}
    assert ("0000:11:00", True) == (place[1], place[2] in ids)


async def test_a_log_that_cannot_be_written(kubelet, start_agent, tmp_path):
    """There is a problem, everything else goes on, and the line is written later."""
    place = tmp_path / "logs"
    log = place / "kern.log"
    agent = await start_agent(config(log))

    def complaints():
        return [each.message for each in agent.agent.reconciler.problems if "kernel log" in each.message]

    await kubelet.wait_until(lambda: bool(complaints()), what="the problem")
    assert "cannot write Xid 79 of GPU-" in complaints()[0]
    assert "No such file or directory" in complaints()[0]
    place.mkdir()
    await kubelet.wait_until(lambda: len(said(log)) == 2, what="the Xid")
    await kubelet.wait_until(lambda: not complaints(), what="the end of the problem")


async def test_the_kernels_own_log(kubelet, start_agent, tmp_path):
    """`true` is the host's /dev/kmsg. Each write is a line with a level and without a time."""
    kmsg = tmp_path / "dev/kmsg"
    kmsg.parent.mkdir()
    kmsg.touch()
    await start_agent(config("true"), host=HostRoot(tmp_path))
    await kubelet.wait_until(lambda: kmsg.read_text().count("\n") == 2, what="the Xid")
    assert all(line.startswith("<3>NVRM: ") for line in kmsg.read_text().splitlines())


@pytest.mark.parametrize("value", ["kmsg", "1", "/var/log/", "[a]"])
def test_bad_values(value):
    with pytest.raises(ConfigError, match=r"faults\.kernelLog: expected true or the absolute path of a file"):
        load_text(config(value))
