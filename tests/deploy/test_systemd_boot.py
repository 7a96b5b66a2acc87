"""The service under systemd itself: a machine boots in namespaces, with a stub of a kubelet."""

import errno
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MACHINE = ROOT / "tests" / "kit" / "machine.sh"
UNIT = ROOT / "deploy" / "systemd" / "vdev.service"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may boot a systemd in namespaces"),
    pytest.mark.skipif(not Path("/lib/systemd/systemd").exists(), reason="systemd is not installed"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed"),
]

CONFIG = """
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 1, node: {pty: echo}}}
  - {name: stick, resource: acme.dev/stick, glob: /run/sticks/*, health: {probe: open, interval: 1s}}
"""
VDEV = "/opt/python/bin/python -B -m vdev"
DROP_IN = f"""
[Service]
Environment=PYTHONPATH=/opt/vdev
ExecStart=
ExecStart={VDEV} run
StandardError=append:/opt/out/log
TimeoutStartSec=12s
WatchdogSec=6s
"""
# A script that fails ends the machine.
STUB = """
[Unit]
{unit}
FailureAction=exit-force
[Service]
Type=oneshot
RemainAfterExit=yes
KillMode=process
Environment=PYTHONPATH=/opt/vdev CONFIG_FILE=/etc/vdev/vdev.yaml
ExecStart=/bin/sh -eux /etc/systemd/system/{name}.sh
StandardError=append:/opt/out/{name}
"""
END = "systemctl --no-block --force exit"


def stub(name, script, unit=""):
    """A unit that runs a script, by the names of its files."""
    return {f"{name}.service": STUB.format(name=name, unit=unit), f"{name}.sh": script}


def told(out, said):
    """What there is to read of a machine."""
    return "\n".join(f"--- {file.name}\n{file.read_text()}" for file in out.iterdir()) + said


def remove(group):
    """Remove a control group. Its processes are killed with the machine's first one; the kernel takes its time."""
    deadline = time.monotonic() + 30
    for each in sorted(group.glob("**/"), reverse=True):
        while True:
            try:
                each.rmdir()
                break
            except OSError as busy:
                if busy.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def boot(directory, *stubs, seconds):
    """Boot with these units, by their names, until one of them ends it; gives the directory of what they wrote."""
    for name in ("units/vdev.service.d", "etc", "out"):
        (directory / name).mkdir(parents=True)
    wants = " ".join(name for each in stubs for name in each if name.endswith(".service"))
    files = {"vdev.service": UNIT.read_text(), "vdev.service.d/test.conf": DROP_IN}
    files |= {"story.target": f"[Unit]\nWants={wants}\nAllowIsolate=yes\n"}
    for name, text in {key: text for each in (files, *stubs) for key, text in each.items()}.items():
        (directory / "units" / name).write_text(text)
    (directory / "etc" / "vdev.yaml").write_text(CONFIG)
    command = [MACHINE, directory, ROOT, sys.prefix]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        pytest.fail(f"it does not end within {seconds} s: {told(directory / 'out', said)}")
    finally:
        process.kill()
        process.communicate()
        for group in Path("/sys/fs/cgroup").glob(f"**/vdev-test-{process.pid}"):
            remove(group)
    if not (directory / "out" / "before").exists():  # no unit has begun
        pytest.skip(f"systemd does not boot here: {said[-500:]}")
    return directory / "out", said


BEFORE = f"""
mkdir -p /run/sticks /var/lib/kubelet/device-plugins
mknod /run/sticks/a c 1 3
{VDEV} run & before=$!
until grep -q stick-a /var/lib/vdev/state-*.json; do sleep 0.1; done
kill $before
wait $before
rm -f /run/sticks/a /var/lib/kubelet/device-plugins/*
"""
LATE = """
until systemctl show vdev -p StatusText | grep 'not there: stick-a'; do sleep 0.3; done >/opt/out/waits
systemctl show vdev kubelet -p ActiveState >>/opt/out/waits
sleep 13
mknod /run/sticks/a c 1 3
"""
KUBELET = """
systemctl show vdev -p ActiveState,StatusText,NRestarts >/opt/out/then
ls /var/lib/kubelet/device-plugins /run/vdev/devices >>/opt/out/then
"""
AFTERWARDS = f"""
systemctl reload vdev
systemctl kill -s STOP --kill-who=main vdev
until systemctl show vdev -p NRestarts | grep '=[1-9]' && systemctl is-active vdev; do sleep 0.5; done
systemctl stop vdev
systemctl show vdev -p Result >/opt/out/end
ls /run/vdev/devices >>/opt/out/end
{END}
"""


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_boot(tmp_path):
    """The kubelet waits for a stick that comes late, longer than a start may take; a plugin that hangs is replaced."""
    out, said = boot(
        tmp_path / "machine",
        stub("before", BEFORE, "Before=vdev.service"),
        stub("late", LATE, "After=before.service"),
        stub("kubelet", KUBELET, "Wants=vdev.service"),
        stub("afterwards", AFTERWARDS, "After=kubelet.service"),
        seconds=120,
    )
    words = told(out, said)
    assert {"waits", "then", "end"} <= {file.name for file in out.iterdir()}, words
    waits, then, end = ((out / name).read_text() for name in ("waits", "then", "end"))
    assert ["ActiveState=activating", "ActiveState=inactive"] == re.findall("ActiveState=.*", waits), words
    assert ["ActiveState=active", "NRestarts=0"] == sorted(re.findall("(?:ActiveState|NRestarts)=.*", then)), words
    assert "not there:" not in then, words
    assert ["vdev-npu", "vdev-stick"] == re.findall(r"^(vdev-[a-z]+)-.*\.sock$", then, re.MULTILINE), words
    assert "\nvdev-npu-0\n" in then, words
    assert ["Result=success", "vdev-npu-0"] == end.split(), words  # what containers use outlives the service
