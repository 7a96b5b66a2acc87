"""The systemd service: its order, its paths, and systemd's own checks."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vdev.agent.options import Options
from vdev.cli.options import OPTIONS

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
EXPOSURE = 30  # tenths; the rest is due to three capabilities, the devices and the network

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (package systemd)"
)


def words(key):
    """All words of all lines with this key."""
    return [word for line in re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE) for word in line.split()]


@pytest.fixture
def unit(tmp_path):
    """The service file in its own directory, with an installed program and the drop-in from the page."""
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
def test_systemd_analyze_verify(unit):
    """Every key is known and every value is accepted. Messages about other units of this machine are ignored."""
    code, said = analyze("verify", unit)
    assert [] == [line for line in said.splitlines() if "vdev" in line or "local.conf" in line]
    assert 0 == code


@needs_systemd
def test_the_exposure_is_low(unit):
    """`systemd-analyze security` measures it."""
    shutil.rmtree(unit.with_name("vdev.service.d"))
    code, said = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", unit)
    assert 0 == code, said


def test_it_starts_before_every_kubelet():
    """Otherwise pods lose their devices at a reboot."""
    assert set(words("Before")) >= KUBELETS
    assert ["notify"] == words("Type")


def test_default_directories_are_writable():
    """Files that containers use stay when the service stops."""
    defaults = {name: field.default for name, field in Options.model_fields.items()}
    at_run = {Path("/run", name) for name in words("RuntimeDirectory")}
    assert {Path("/run/vdev"), Path("/run/cdi")} == at_run
    for name in ("cdi_dir", "device_dir"):
        place = Path("/run") / defaults[name].relative_to("/var/run")
        assert at_run & {place, *place.parents}, name
    assert ["yes"] == words("RuntimeDirectoryPreserve")
    assert ["vdev"] == words("StateDirectory")
    assert [f"-{defaults['kubelet_dir']}"] == words("ReadWritePaths")


def test_environment_variables_are_options():
    """A misspelled one would be ignored silently."""
    known = {variable for option in OPTIONS for variable in option.variables}
    assert {each.partition("=")[0] for each in words("Environment")} <= known
    assert set(re.findall(r"`(VDEV_[A-Z_]+)=", PAGE.read_text())) <= known


def test_capabilities():
    """A misspelled one is no error for systemd."""
    assert {"CAP_MKNOD", "CAP_DAC_OVERRIDE", "CAP_FOWNER"} == set(words("CapabilityBoundingSet"))


def test_no_setting_restricts_devices():
    """Each of these adds a DeviceAllow=, which would keep health probes from opening the host's devices."""
    assert [] == [key for key in ("PrivateDevices", "ProtectClock", "DeviceAllow") if words(key)]
