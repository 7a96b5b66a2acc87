"""Reading untrusted paths: only regular files of bounded size."""

import os
import socket
from pathlib import Path

import pytest

from vdev.errors import HostError
from vdev.hostfs import read_plain


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    """Up to the limit, also through a link; a missing file is None."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert b"12345" == read_plain(tmp_path / "file", limit=5)
    assert b"12345" == read_plain(tmp_path / "link", limit=5)
    assert read_plain(tmp_path / "nothing", limit=5) is None


def test_a_file_of_unknown_size_is_read() -> None:
    """Files in /proc have size 0; the limit applies to them too."""
    path = Path("/proc/self/smaps")
    assert 0 == path.stat().st_size
    found = read_plain(path, limit=2**24)
    assert found is not None
    assert found.count(b"VmFlags") > 100
    with pytest.raises(HostError, match="more than 5000 bytes"):
        read_plain(path, limit=5000)


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("directory", "a directory"),
        ("device", "a device node"),
        ("large", "more than 5 bytes"),
        ("sparse", "more than 5 bytes"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, kind: str, said: str, follow: bool) -> None:
    """It does not wait for a pipe and does not open a device."""
    path = tmp_path / "it"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))
        case "directory":
            path.mkdir()
        case "device":
            path = Path("/dev/zero")
        case "large":
            path.write_bytes(b"123456")
        case "sparse":
            with path.open("wb") as file:
                file.truncate(2**40)
    with pytest.raises(HostError, match=said):
        read_plain(path, limit=5, follow=follow)


@pytest.mark.parametrize(
    ("target", "follow", "said"),
    [
        ("nowhere", True, "symbolic link to nothing"),
        ("link", True, "symbolic links"),
        ("nowhere", False, "a symbolic link"),
        ("file", False, "a symbolic link"),
    ],
)
def test_links(tmp_path: Path, target: str, follow: bool, said: str) -> None:
    """Broken links and loops are refused; without `follow`, all links are."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(HostError, match=said):
        read_plain(tmp_path / "link", limit=5, follow=follow)
