"""HostRoot: maps host paths to local paths and back, and never leaves the root."""

import os
from pathlib import Path

import pytest

from vdev.errors import HostError
from vdev.hostfs import HostRoot
from vdev.hostfs.root import truncate


@pytest.fixture
def host(tmp_path: Path) -> HostRoot:
    (tmp_path / "host/dev").mkdir(parents=True)
    return HostRoot(tmp_path / "host")


@pytest.mark.parametrize(
    ("link", "target", "path", "found"),
    [
        ("dev/link", "/dev/target", "/dev/link", "dev/target"),
        ("dev/up", "../../../../../etc/passwd", "/dev/up", "etc/passwd"),
        ("var/run", "/run", "/var/run/x.sock", "run/x.sock"),
    ],
    ids=["absolute", "relative", "a directory"],
)
def test_a_link_is_resolved_below_the_root(host: HostRoot, link: str, target: str, path: str, found: str) -> None:
    """As in a chroot: `..` stops at the root."""
    for each in (link, found):
        (host.root / each).parent.mkdir(exist_ok=True)
    (host.root / link).symlink_to(target)
    (host.root / found).write_text("the host's")
    assert (host.root / found, f"/{found}") == (host.path(path), host.resolve(path))
    assert "the host's" == host.read_text(path)


def test_without_follow_a_link_is_kept(host: HostRoot) -> None:
    (host.root / "dev/link").symlink_to("target")
    assert "/dev/link" == host.resolve("/dev/link", follow=False)
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
    assert "" == host.link(path)
    for look in (host.info, host.read_text, lambda path: list(host.entries(path))):
        with pytest.raises(HostError, match="cannot"):
            look(path)


def test_a_directory_that_becomes_a_link_is_not_followed_out_of_the_root(
    host: HostRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens between the check of the path and the change of the file."""
    outside = host.root.parent / "outside"
    outside.mkdir()
    (outside / "x").write_text("of the container")
    (host.root / "dev").rename(host.root / "old")
    (host.root / "dev").symlink_to(outside)
    monkeypatch.setattr(host, "resolve", lambda path: path)
    with pytest.raises(HostError, match="refused to empty /dev/x: it was replaced"):
        truncate(host, "/dev/x")
    assert "of the container" == (outside / "x").read_text()
