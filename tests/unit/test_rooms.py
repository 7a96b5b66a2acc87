"""The house: packages that one can overlook."""

from pathlib import Path

import vdev

ROOT = Path(vdev.__file__).parent


def test_a_package_says_what_it_is():
    """In a sentence at the head of its `__init__.py`."""
    assert set() == {each for each in ROOT.rglob("__init__.py") if not each.read_text().startswith('"""')}
