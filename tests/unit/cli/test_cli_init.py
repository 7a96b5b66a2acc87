"""`vdev init`: all starters are valid, and nothing is overwritten."""

import pytest

from vdev.cli import main
from vdev.cli.init import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_starter_is_valid(kind, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    assert 0 == main(["init", kind, str(path)])
    output = capsys.readouterr()
    assert f"vdev plan {path}" in output.err
    assert output.out == ""
    assert path.read_text().startswith("# yaml-language-server: $schema=vdev.schema.json\n")
    assert (tmp_path / "vdev.schema.json").exists()
    assert 0 == main(["validate", str(path)])
    assert f"{path}: valid\n" == capsys.readouterr().out


def test_commented_parts_are_valid(tmp_path, capsys):
    assert 0 == main(["init", "virtual", "-"])
    text = capsys.readouterr().out
    text = text.replace("# sharing:", "sharing:").replace("#   timeSlicing:", "  timeSlicing:")
    text = text.replace("#     resources:", "    resources:").replace("# onNodes:", "onNodes:")
    (tmp_path / "vdev.yaml").write_text(text.replace("# mounts:", "mounts:"))
    assert 0 == main(["validate", str(tmp_path / "vdev.yaml")])


def test_a_file_is_not_overwritten(tmp_path, capsys):
    path = tmp_path / "vdev.yaml"
    path.write_text("mine")
    assert 2 == main(["init", "gpu", str(path)])
    assert "exists already" in capsys.readouterr().err
    assert "mine" == path.read_text()
