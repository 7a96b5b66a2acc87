"""A source of devices that only part of the program knows is an error, not another source."""

import pytest

from tests.kit.fakehost import FakeHost
from tests.kit.specs import made_entry
from vdev import discovery


def test_an_entry_whose_source_discovery_does_not_know(tmp_path):
    entry = made_entry("e", "example.com/e")
    with pytest.raises(ValueError, match="a source that discovery does not know"):
        discovery.discover(entry, FakeHost(tmp_path).host, node="n")
