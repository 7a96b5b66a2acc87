"""A host that notes what it was asked: whether it would all be answered the same again."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from vdev.core.spec import NodeKind
from vdev.errors import HostError
from vdev.hostfs import HostRoot
from vdev.hostfs.noted_host import NotedHost


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with a directory of files, a link into it, and an attribute."""
    for name in ("dev/bus", "sys/x", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "dev/a").write_text("")
    (tmp_path / "other/a").write_text("")
    (tmp_path / "by").symlink_to("dev")
    (tmp_path / "to-a").symlink_to("/dev/a")
    (tmp_path / "sys/x/numa_node").write_text("0")
    return tmp_path


def asked(host: NotedHost) -> None:
    """Every kind of question."""
    list(host.entries("/dev"))
    host.info("/by/a")
    host.exists("/dev/nothing")
    host.is_present("/dev/gone")
    host.link("/to-a")
    host.read_text("/sys/x/numa_node")
    host.path("/to-a")


def nothing(_root: Path) -> None:
    pass


def add(root: Path) -> None:
    (root / "dev/b").write_text("")


def make_directory(root: Path) -> None:
    (root / "dev/a").unlink()
    (root / "dev/a").mkdir()


def appear(root: Path) -> None:
    (root / "dev/gone").symlink_to("nowhere")


def lead_elsewhere(root: Path) -> None:
    (root / "to-a").unlink()
    (root / "to-a").symlink_to("/other/a")


def go_another_way(root: Path) -> None:
    (root / "by").unlink()
    (root / "by").symlink_to("other")


def write(root: Path) -> None:
    (root / "sys/x/numa_node").write_text("1")


def remove(root: Path) -> None:
    (root / "sys/x/numa_node").unlink()


def loop(root: Path) -> None:
    (root / "by").unlink()
    (root / "by").symlink_to("by")


@pytest.mark.parametrize(
    "change", [nothing, add, make_directory, appear, lead_elsewhere, go_another_way, write, remove, loop]
)
def test_a_change_of_any_answer_is_seen(root: Path, change: Callable[[Path], None]) -> None:
    """And only of one: what was not asked may change."""
    host = HostRoot(root)
    noted = NotedHost(host.at_one_moment())
    asked(noted)
    (root / "other/b").write_text("")
    (root / "dev/a").touch()
    change(root)
    assert (change is nothing) == noted.says_the_same(host.at_one_moment()) == noted.says_the_same(host)


def test_answers_are_those_of_the_host(root: Path) -> None:
    """To note them changes none."""
    host = HostRoot(root)
    noted = NotedHost(host)
    assert sorted(host.entries("/dev")) == sorted(noted.entries("/dev"))
    assert host.info("/to-a") == noted.info("/to-a")
    assert (host.link("/to-a"), host.link("/dev/a")) == (noted.link("/to-a"), noted.link("/dev/a"))
    assert "0" == noted.read_text("/sys/x/numa_node")
    assert "" == noted.read_text("/sys/x/numa_node", limit=0)
    assert host.path("/to-a", follow=False) == noted.path("/to-a", follow=False)
    assert host.path("/to-a") == noted.path("/to-a")
    with pytest.raises(HostError):
        noted.resolve("/\0")


def test_an_error_is_never_the_same(root: Path) -> None:
    """What could not be looked at may be looked at now, or for another reason not."""
    (root / "loop").symlink_to("loop")
    host = HostRoot(root)
    noted = NotedHost(host)
    assert not noted.exists("/loop")
    assert not noted.says_the_same(host)
    noted = NotedHost(host)
    with pytest.raises(HostError):
        list(noted.entries("/loop"))
    assert not noted.says_the_same(host)


def test_a_disk_is_never_the_same(root: Path) -> None:
    """It may be in use by now, which its node does not tell."""

    def inspect(path: str) -> tuple[NodeKind, int, int]:
        found = os.lstat(path)
        return (NodeKind.BLOCK, 8, 0) if stat.S_ISREG(found.st_mode) else (NodeKind.DIRECTORY, 0, 0)

    host = HostRoot(root, inspect=inspect)
    noted = NotedHost(host)
    noted.info("/dev")
    assert noted.says_the_same(host)
    noted.info("/dev/a")
    assert not noted.says_the_same(host)


def test_what_changes_while_it_is_looked_at_is_never_the_same(root: Path) -> None:
    """What followed from the first answer is not what the second one means."""
    host = HostRoot(root)
    noted = NotedHost(host)
    noted.link("/to-a")
    lead_elsewhere(root)
    noted.link("/to-a")
    assert not noted.says_the_same(host)


def test_a_directory_with_thousands_of_entries_is_listed_whole(root: Path) -> None:
    """Only that is not kept."""
    (root / "many").mkdir()
    for number in range(4100):
        os.mkfifo(root / f"many/{number}")
    host = HostRoot(root)
    noted = NotedHost(host)
    assert {(str(number), False) for number in range(4100)} == set(noted.entries("/many"))
    assert not noted.says_the_same(host)
