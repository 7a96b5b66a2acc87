"""write_atomic: all of the file or nothing of it."""

from pathlib import Path

import pytest

from vdev.errors import HostError
from vdev.hostfs import write_atomic


def test_a_file_is_written_with_its_mode(tmp_path: Path) -> None:
    """Content and mode are those asked for, whatever the umask."""
    write_atomic(tmp_path / "spec.json", b"{}", mode=0o640, sync=True)
    assert b"{}" == (tmp_path / "spec.json").read_bytes()
    assert 0o640 == (tmp_path / "spec.json").stat().st_mode & 0o777


def test_a_file_is_replaced_by_another(tmp_path: Path) -> None:
    """A reader who has the old file open keeps the old content whole."""
    path = tmp_path / "spec.json"
    write_atomic(path, b"old")
    with path.open("rb") as reader:
        write_atomic(path, b"new")
        assert b"old" == reader.read()
    assert b"new" == path.read_bytes()


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    """When the rename fails, the target stays and the temporary file is gone."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/child").touch()
    with pytest.raises(HostError, match="cannot write"):
        write_atomic(tmp_path / "taken", b"data")
    assert [tmp_path / "taken"] == list(tmp_path.iterdir())


def test_a_missing_directory_is_a_sentence(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    with pytest.raises(HostError, match=r"cannot write .*/none/file: No such file"):
        write_atomic(tmp_path / "none/file", b"")
