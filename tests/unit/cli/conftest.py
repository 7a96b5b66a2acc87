"""Fixtures that run commands in the test's process."""

import pytest

from vdev import cli


@pytest.fixture
def vdev(capsys):
    """Run a command. Returns its exit code, and what it printed to stdout and stderr."""

    def run(*arguments):
        code = cli.main([str(each) for each in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def written(tmp_path):
    """Write a configuration. Returns its path, `vdev.yaml` by default."""

    def write(text, name="vdev.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
