"""The house: packages that one can overlook."""

from pathlib import Path

import vdev

ROOT = Path(vdev.__file__).parent
MOST = 12  # modules beside `__init__.py`
GENERATED = {"pb"}


def test_a_package_has_a_dozen_modules_at_the_most():
    """Before it has more it gets packages of its own, by subject; docs/architecture.md says which there are."""
    sizes = {each.parent.relative_to(ROOT).as_posix(): 0 for each in ROOT.rglob("__init__.py")}
    for module in ROOT.rglob("*.py"):
        sizes[module.parent.relative_to(ROOT).as_posix()] += module.name != "__init__.py"
    assert {} == {name: size for name, size in sizes.items() if size > MOST and name not in GENERATED}


def test_a_package_says_what_it_is():
    """In a sentence at the head of its `__init__.py`."""
    assert set() == {each for each in ROOT.rglob("__init__.py") if not each.read_text().startswith('"""')}
