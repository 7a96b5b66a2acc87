"""What is watched for the sake of devices."""

from pathlib import Path

from vdev import config
from vdev.agent.scan import Scan, Scanner
from vdev.core.spec import Spec
from vdev.hostfs import HostRoot


def spec(glob: str) -> Spec:
    """One entry with that pattern."""
    return config.load_text(f"devices: [{{name: a, resource: example.com/a, glob: '{glob}'}}]").spec


async def test_a_loop_of_links_stops_nothing(tmp_path: Path) -> None:
    """What is behind it is not found; the directory that the loop stands in is watched, as for everything in it."""
    (tmp_path / "dir/real").mkdir(parents=True)
    (tmp_path / "dir/loop").symlink_to("loop")
    scanner = Scanner(HostRoot(tmp_path), "n", tmp_path)
    scan = await scanner.scan(Scan(), spec("/dir/*/z"))
    assert {tmp_path / "dir", tmp_path / "dir/real"} == scanner.watched(scan).keys()


async def test_a_loop_of_links_on_the_way_to_the_pattern(tmp_path: Path) -> None:
    """Its end is noticed where it stands."""
    (tmp_path / "loop").symlink_to("loop")
    scanner = Scanner(HostRoot(tmp_path), "n", tmp_path)
    scan = await scanner.scan(Scan(), spec("/loop/below/tty*"))
    assert {tmp_path} == scanner.watched(scan).keys()
