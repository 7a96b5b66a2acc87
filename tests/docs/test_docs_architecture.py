"""The walks through the code in docs/architecture.md: short, each room once, and there."""

import re
from collections import Counter
from pathlib import Path

import pytest

import vdev

ROOT = Path(vdev.__file__).parent
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text()
WALKS = dict(re.findall(r"^## The way of ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
MOST = 12  # steps
ROOM = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`")


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_is_short_and_goes_nowhere_twice(walk):
    """A newcomer follows it from one file to the next."""
    steps = re.findall(r"^[0-9]+\. (.*?)(?=^[0-9]+\. |^\n|\Z)", WALKS[walk], re.DOTALL | re.MULTILINE)
    rooms = Counter(room for step in steps for room in ROOM.findall(step))
    assert 1 < len(steps) <= MOST
    assert [] == [room for room in rooms if not (ROOT / room).exists()]
    assert [] == [room for room, times in rooms.items() if times > 1]


def test_the_walks_are_found():
    """Those that a newcomer asks for first."""
    assert {"`count: 2`", "an Allocate", "a fault rule", "a flag"} <= WALKS.keys()
