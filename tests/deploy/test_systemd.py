"""The systemd service: its order, its paths, and the checks of systemd itself."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vdev.cli.options import OPTIONS, Settings

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "vdev.service"
PAGE = ROOT / "docs" / "on-the-host.md"
KUBELETS = {
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
}
EXPOSURE = 30  # tenths; what is left over is root's three capabilities, the devices, and the network

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (package systemd)"
)


def words(key):
    """All words of all lines with that key."""
    return [word for line in re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE) for word in line.split()]


@pytest.fixture
def unit(tmp_path):
    """The service in its own directory, with an installed program, and with the drop-in of the page."""
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text().replace("ExecStart=vdev ", f"ExecStart={sys.executable} -m vdev "))
    drop_in = tmp_path / "vdev.service.d" / "local.conf"
    drop_in.parent.mkdir()
    (text,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(), re.DOTALL)
    drop_in.write_text(text)
    return file


def analyze(*arguments):
    """Run systemd-analyze. Returns its exit code and its output."""
    done = subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


@needs_systemd
def test_systemd_understands_every_line(unit):
    """No key is unknown, and no value is refused. Messages about other units of this machine do not matter."""
    code, said = analyze("verify", unit)
    assert [] == [line for line in said.splitlines() if "vdev" in line or "local.conf" in line]
    assert 0 == code


@needs_systemd
def test_what_it_may_do_is_little(unit):
    """By systemd's own measure."""
    shutil.rmtree(unit.with_name("vdev.service.d"))
    code, said = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", unit)
    assert 0 == code, said


def test_every_kubelet_comes_after_it():
    """Otherwise pods lose their devices at a reboot."""
    assert set(words("Before")) >= KUBELETS
    assert ["notify"] == words("Type")


def test_it_may_write_where_its_defaults_are():
    """The files that containers use stay when the service ends."""
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    at_run = {Path("/run", name) for name in words("RuntimeDirectory")}
    assert {Path("/run/vdev"), Path("/run/cdi")} == at_run
    for name in ("cdi_dir", "device_dir"):
        place = Path("/run") / defaults[name].relative_to("/var/run")
        assert at_run & {place, *place.parents}, name
    assert ["yes"] == words("RuntimeDirectoryPreserve")
    assert ["vdev"] == words("StateDirectory")
    assert [f"-{defaults['kubelet_dir']}"] == words("ReadWritePaths")


def test_its_variables_are_options():
    """A misspelled one would be ignored silently."""
    known = {variable for option in OPTIONS for variable in option.variables}
    assert {each.partition("=")[0] for each in words("Environment")} <= known
    assert set(re.findall(r"`(VDEV_[A-Z_]+)=", PAGE.read_text())) <= known


def test_its_capabilities():
    """For systemd, a misspelled one is no error."""
    assert {"CAP_MKNOD", "CAP_DAC_OVERRIDE", "CAP_FOWNER"} == set(words("CapabilityBoundingSet"))


def test_it_takes_no_list_of_devices():
    """These would keep probes from opening the host's devices: each brings a DeviceAllow= with it."""
    assert [] == [key for key in ("PrivateDevices", "ProtectClock", "DeviceAllow") if words(key)]
