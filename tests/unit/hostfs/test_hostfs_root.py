"""HostRoot: maps host paths to local paths and back, and never leaves the root."""

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
    (host.root / "dev/link").symlink_to("/dev/target")
    (host.root / "dev/target").write_text("the host's")
    assert "/dev/target" == host.resolve("/dev/link")
    assert "the host's" == host.read_text("/dev/link")


def test_a_relative_link_stays_below_the_root(host: HostRoot) -> None:
    """`..` stops at the root, as in a chroot."""
    (host.root / "dev/up").symlink_to("../../../../../etc/passwd")
    assert host.root / "etc/passwd" == host.path("/dev/up")


def test_a_linked_directory_is_resolved(host: HostRoot) -> None:
    """As with /var/run -> /run."""
    (host.root / "run").mkdir()
    (host.root / "var").mkdir()
    (host.root / "var/run").symlink_to("/run")
    assert host.root / "run/x.sock" == host.path("/var/run/x.sock")


def test_without_follow_a_link_is_kept(host: HostRoot) -> None:
    (host.root / "dev/link").symlink_to("target")
    assert host.root / "dev/link" == host.path("/dev/link", follow=False)
    assert "target" == host.link("/dev/link")


def test_a_loop_of_links_is_an_error(host: HostRoot) -> None:
    (host.root / "dev/a").symlink_to("b")
    (host.root / "dev/b").symlink_to("a")
    with pytest.raises(HostError, match="loop"):
        host.path("/dev/a")
    assert not host.exists("/dev/a")


def test_reading_a_pipe_without_a_writer_does_not_block(host: HostRoot) -> None:
    os.mkfifo(host.root / "fifo")
    assert "" == host.read_text("/fifo")


@pytest.mark.parametrize("name", ["n" * 300, "a\0b"], ids=["too long", "with a NUL"])
def test_invalid_file_names(host: HostRoot, name: str) -> None:
    """Such a path does not exist; reading it raises HostError."""
    path = f"/dev/{name}"
    assert not host.exists(path)
    assert not host.is_present(path)
    assert "" == host.link(path)
    for look in (host.info, host.read_text, lambda path: list(host.entries(path))):
        with pytest.raises(HostError, match="cannot"):
            look(path)
