"""Removing directories, also those that an interrupted removal left."""

from pathlib import Path

from vdev.hostfs.files import remove_tree


def test_an_interrupted_removal_is_finished(tmp_path: Path) -> None:
    """What it had moved aside is in nobody's way, and can be removed itself."""
    tree, left = tmp_path / "x", tmp_path / ".x.0.tmp"
    (tree / "a" / "b").mkdir(parents=True)
    (left / "c" / "d").mkdir(parents=True)
    remove_tree(tree)
    assert [left] == [*tmp_path.iterdir()]
    remove_tree(left)
    assert not [*tmp_path.iterdir()]
