"""What is watched for the sake of devices."""

import threading
from pathlib import Path

import pytest

from vdev import config, discovery
from vdev.agent.scanner import Scan, Scanner
from vdev.agent.steps import Steps
from vdev.aio.clock import ManualClock, Timing
from vdev.hostfs import HostRoot
from vdev.hostfs.root import inspect
from vdev.model.entry import EntrySpec, NodeKind
from vdev.model.spec import Spec


def spec(glob: str) -> Spec:
    """One entry with that pattern."""
    return config.load_text(f"devices: [{{name: a, resource: example.com/a, glob: '{glob}'}}]").spec


async def test_a_loop_of_links_stops_nothing(tmp_path: Path) -> None:
    """What is behind it is not found; the directory that the loop stands in is watched, as for everything in it."""
    (tmp_path / "dir/real").mkdir(parents=True)
    (tmp_path / "dir/loop").symlink_to("loop")
    scanner = Scanner(HostRoot(tmp_path), "n", tmp_path, tmp_path)
    scan = await scanner.scan(Scan(), spec("/dir/*/z"))
    assert {tmp_path / "dir", tmp_path / "dir/real"} == scan.watched


async def test_a_loop_of_links_on_the_way_to_the_pattern(tmp_path: Path) -> None:
    """Its end is noticed where it stands."""
    (tmp_path / "loop").symlink_to("loop")
    scanner = Scanner(HostRoot(tmp_path), "n", tmp_path, tmp_path)
    scan = await scanner.scan(Scan(), spec("/loop/below/tty*"))
    assert {tmp_path} == scan.watched


GLOBS = """devices:
  - {name: a, resource: example.com/a, glob: "/dev/tty[AB]*"}
  - {name: b, resource: example.com/b, glob: /dev/video*}
  - {name: link, resource: example.com/link, glob: /by-id/*}
  - {name: below, resource: example.com/below, glob: "/dev/**/x"}
  - {name: fixed, resource: example.com/fixed, glob: {path: /dev/null}}
"""


async def test_a_change_concerns_the_entries_that_can_see_it(tmp_path: Path) -> None:
    """Those that look into the directory."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "by-id").mkdir()
    (tmp_path / "dev/plain").touch()
    (tmp_path / "by-id/one").symlink_to("/dev/plain")
    scanner = Scanner(HostRoot(tmp_path), "n", tmp_path, tmp_path)
    scan = await scanner.scan(Scan(), config.load_text(GLOBS).spec)
    assert {tmp_path / "dev", tmp_path / "by-id"} == scan.watched

    assert {"a", "b", "below", "fixed"} == scan.concerned([tmp_path / "dev"])
    assert {"link"} == scan.concerned([tmp_path / "by-id"])
    assert not scan.concerned([tmp_path])


async def test_entries_are_looked_for_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are due: threads that look at the same time keep requests from the interpreter, each in its turn."""
    looking = threading.Lock()
    overlaps: list[str] = []

    def discover(entry: EntrySpec, *_: object, **__: object) -> discovery.Found:
        if not looking.acquire(blocking=False):
            overlaps.append(entry.name)
            return discovery.Found()
        threading.Event().wait(0.005)  # long enough for another one to begin
        looking.release()
        return discovery.Found()

    monkeypatch.setattr(discovery, "discover", discover)
    scan = await Scanner(HostRoot(tmp_path), "n", tmp_path, tmp_path).scan(Scan(), config.load_text(GLOBS).spec)
    assert {"a", "b", "link", "below", "fixed"} == scan.found.keys()
    assert [] == overlaps


async def test_devices_of_an_entry_whose_scan_failed_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found for the entry as it was before is not taken for what the changed one has."""
    clock = ManualClock()
    scanner = Scanner(HostRoot(tmp_path), "n", tmp_path, tmp_path, Steps(timing=Timing(clock=clock)))
    two, three = (
        config.load_text(f"devices: [{{name: a, resource: example.com/a, virtual: {{count: {count}}}}}]").spec
        for count in (2, 3)
    )
    scan = await scanner.scan(Scan(), two)
    with monkeypatch.context() as broken:
        broken.setattr(discovery, "discover", _fail)
        scan = await scanner.scan(scan, three)
    assert 2 == scan.size
    assert {"a"} == scanner.failed
    clock.advance(3600)
    scan = await scanner.scan(scan, three, only=["a"])
    assert (3, frozenset()) == (scan.size, scanner.failed)


def _fail(*_: object, **__: object) -> discovery.Found:
    raise MemoryError


def _as_node(path: str) -> tuple[NodeKind, int, int]:
    kind, major, minor = inspect(path)
    return (NodeKind.CHAR, 10, 1) if kind is NodeKind.FILE else (kind, major, minor)


async def test_only_the_entries_that_are_asked_for_are_looked_for(tmp_path: Path) -> None:
    """The others keep what was found for them."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "by-id").mkdir()
    (tmp_path / "dev/ttyA0").touch()
    scanner = Scanner(HostRoot(tmp_path, inspect=_as_node), "n", tmp_path, tmp_path)
    wanted = config.load_text(GLOBS).spec
    first = await scanner.scan(Scan(), wanted)
    assert first == await scanner.scan(first, wanted)
    (tmp_path / "dev/video3").touch()
    (tmp_path / "by-id/one").symlink_to("/dev/ttyA0")

    def sizes(scan: Scan) -> dict[str, int]:
        return {name: len(found.devices) for name, found in scan.found.items()}

    second = await scanner.scan(first, wanted, only=["b"])
    assert {"a": 1, "b": 1, "link": 0, "below": 0, "fixed": 0} == sizes(second)
    assert {"a": 1, "b": 1, "link": 1, "below": 0, "fixed": 0} == sizes(await scanner.scan(second, wanted))


async def test_an_entry_that_says_something_else_is_looked_for(tmp_path: Path) -> None:
    """What was concluded for the entry as it was before is not what the new one means."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ttyA0").touch()
    host = HostRoot(tmp_path, inspect=_as_node)
    scanner = Scanner(host, "n", tmp_path, tmp_path)
    scan = await scanner.scan(Scan(), spec("/dev/tty*"))
    assert 1 == scan.size
    scan = await scanner.scan(scan, spec("/dev/ttyA[1]"))
    assert 0 == scan.size
    scan = await scanner.scan(scan, spec("/dev/tty*"))
    assert 1 == scan.size
