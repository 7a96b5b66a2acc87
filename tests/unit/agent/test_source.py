"""Which directories must be watched so that no change of a configuration file is missed."""

import os
from pathlib import Path

import pytest

from vdev.agent.config_files import directories


def test_the_directory_of_a_plain_file(tmp_path: Path) -> None:
    """Editors rename a new file over the old one."""
    assert frozenset({tmp_path}) == directories([tmp_path / "vdev.yaml"])


def test_a_directory_of_files_is_watched_itself(tmp_path: Path) -> None:
    """Files come and go in it."""
    assert frozenset({tmp_path}) == directories([tmp_path])


def test_the_directory_of_every_link_on_the_way(tmp_path: Path) -> None:
    """A swap of any of them is another file, also of one in the middle of another link's target."""
    for name in ("etc", "mnt", "mnt/v1"):
        (tmp_path / name).mkdir()
    (tmp_path / "mnt/v1/vdev.yaml").touch()
    (tmp_path / "mnt/..data").symlink_to("v1")
    (tmp_path / "etc/vdev.yaml").symlink_to("../mnt/..data/vdev.yaml")
    assert {tmp_path / "etc", tmp_path / "mnt", tmp_path / "mnt/v1"} == directories([tmp_path / "etc/vdev.yaml"])


def test_a_linked_directory_of_files(tmp_path: Path) -> None:
    """What the link leads to is watched, and where the link stands."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert {tmp_path, tmp_path / "real"} == directories([tmp_path / "link"])


def test_a_link_to_itself_is_watched_where_it_stands(tmp_path: Path) -> None:
    """It may become a file again."""
    (tmp_path / "vdev.yaml").symlink_to("vdev.yaml")
    assert frozenset({tmp_path}) == directories([tmp_path / "vdev.yaml"])


@pytest.mark.parametrize("name", ["y" * 300, "a\0b", "no/such/directory"])
def test_what_cannot_be_looked_at_stops_nothing(tmp_path: Path, name: str) -> None:
    """The reader of the file says what is wrong with it."""
    path = tmp_path / name
    assert {path.parent} == directories([path])


def test_links_above_the_root_stay_at_the_root() -> None:
    """As the kernel has it."""
    assert frozenset({Path("/")}) == directories([Path("/") / os.pardir / "no-such-file"])
