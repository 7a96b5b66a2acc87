"""The snippets of the pages on discovery find the described devices."""

import re
from pathlib import Path

import pytest

from tests.kit.fakehost import FakeHost
from vdev import config, discovery
from vdev.model.spec import Spec

ROOT = Path(__file__).parents[3]


def compiled(tmp_path: Path, text: str) -> Spec:
    """The loaded configuration."""
    path = tmp_path / "vdev.yaml"
    path.write_text(text)
    return config.load([path]).spec


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FakeHost]:
    """Hosts that tests do not change."""
    place = tmp_path_factory.mktemp("hosts")
    texts = {name: (ROOT / f"tests/kit/{name}.yaml").read_text() for name in ("workstation", "server")}
    return {name: FakeHost(place / name).add(text) for name, text in texts.items()}


@pytest.mark.parametrize(
    ("page", "name", "host", "expected"),
    [
        ("devices-glob", "fuse", "workstation", ["/dev/fuse"]),
        ("devices-glob", "coral", "server", ["/dev/apex_0"]),
        ("devices-sysfs", "camera", "workstation", ["/dev/video0"]),
        ("devices-sysfs", "radeon", "server", ["/dev/dri/card0", "/dev/dri/renderD128"]),
        ("devices-sysfs", "vf", "server", ["/dev/vfio/41", "/dev/vfio/vfio", "/dev/vfio/42", "/dev/vfio/vfio"]),
        ("devices-sysfs", "kvm", "workstation", ["/dev/kvm"]),
        ("devices-usb", "yubikey", "workstation", ["/dev/bus/usb/001/007", "/dev/hidraw1"]),
        ("devices-usb", "webcam", "workstation", ["/dev/bus/usb/001/004", "/dev/video0", "/dev/video1"]),
    ],
)
def test_paths_in_the_container(
    tmp_path: Path, page: str, name: str, host: str, expected: list[str], hosts: dict[str, FakeHost]
) -> None:
    """They are in the order of the devices."""
    text = (ROOT / f"docs/{page}.md").read_text()
    snippets = [each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if f"name: {name}" in each]
    entry = next(each for each in compiled(tmp_path, snippets[0]).entries if each.name == name)
    found = discovery.discover(entry, hosts[host].host, node="n")
    assert expected == [node.container_path for device in found.devices for node in device.nodes]
