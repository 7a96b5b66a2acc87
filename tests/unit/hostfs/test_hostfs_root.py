"""HostRoot: host paths to where we read them and back, never escaping the root."""

import os
from pathlib import Path

import pytest

from vdev.errors import HostError
from vdev.hostfs import HostRoot


@pytest.fixture
def host(tmp_path: Path) -> HostRoot:
    (tmp_path / "host/dev").mkdir(parents=True)
    return HostRoot(tmp_path / "host")


def test_an_absolute_link_is_resolved_below_the_root(host: HostRoot) -> None:
    """A link to /dev/null inside the root means the host's, not ours."""
    (host.root / "dev/link").symlink_to("/dev/target")
    (host.root / "dev/target").write_text("the host's")
    assert "/dev/target" == host.resolve("/dev/link")
    assert "the host's" == host.read_text("/dev/link")


def test_a_relative_link_cannot_climb_out(host: HostRoot) -> None:
    """`..` stops at the root, as in a chroot."""
    (host.root / "dev/up").symlink_to("../../../../../etc/passwd")
    assert host.root / "etc/passwd" == host.path("/dev/up")


def test_a_linked_directory_on_the_way_is_resolved(host: HostRoot) -> None:
    """/var/run -> /run, the classic."""
    (host.root / "run").mkdir()
    (host.root / "var").mkdir()
    (host.root / "var/run").symlink_to("/run")
    assert host.root / "run/x.sock" == host.path("/var/run/x.sock")


def test_a_link_at_the_end_can_be_kept(host: HostRoot) -> None:
    """Without following, the link itself is meant."""
    (host.root / "dev/link").symlink_to("target")
    assert host.root / "dev/link" == host.path("/dev/link", follow=False)
    assert "target" == host.link("/dev/link")


def test_a_loop_of_links_is_an_error(host: HostRoot) -> None:
    """Links in a circle end in a sentence, not in a hang."""
    (host.root / "dev/a").symlink_to("b")
    (host.root / "dev/b").symlink_to("a")
    with pytest.raises(HostError, match="loop"):
        host.path("/dev/a")
    assert not host.exists("/dev/a")


def test_reading_a_pipe_that_nobody_writes_to_returns(host: HostRoot) -> None:
    """A fifo in the place of a file holds nothing up."""
    os.mkfifo(host.root / "fifo")
    assert "" == host.read_text("/fifo")


@pytest.mark.parametrize("name", ["n" * 300, "a\0b"], ids=["too long", "with a NUL"])
def test_a_name_that_no_file_can_have(host: HostRoot, name: str) -> None:
    """It is not there, or the reason is said as for every path that cannot be looked at."""
    path = f"/dev/{name}"
    assert not host.exists(path)
    assert not host.is_present(path)
    assert "" == host.link(path)
    for look in (host.info, host.read_text, lambda path: list(host.entries(path))):
        with pytest.raises(HostError, match="cannot"):
            look(path)
