"""The fault directory, whatever is in it."""

import asyncio

import pytest

from vdev.aio.clock import ManualClock
from vdev.faults.engine import Engine
from vdev.faults.rule_store import RuleStore
from vdev.observe.metrics import Metrics


def scanned(directory):
    """The texts that the store takes from a directory, by file name."""
    texts = {}

    def parse(text, name):
        texts[name.rpartition("/")[2]] = text
        return ()

    engine = Engine("node-a", ManualClock(100.0), Metrics(), on_change=lambda: None)
    asyncio.run(RuleStore(engine, parse, directory).scan())
    return texts


def test_only_files_are_read(tmp_path):
    """Directories, links that lead nowhere and links to themselves are passed over."""
    (tmp_path / "rule.yaml").write_text("name: x")
    (tmp_path / "directory.yaml").mkdir()
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "nowhere.yaml").symlink_to("n" * 300)
    assert {"rule.yaml": "name: x"} == scanned(tmp_path)


@pytest.mark.parametrize("name", ["absent", "n" * 300], ids=["absent", "impossible"])
def test_a_directory_that_is_not_there(tmp_path, name):
    """It is empty for now."""
    assert {} == scanned(tmp_path / name)
