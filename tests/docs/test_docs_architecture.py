"""The files and folders in docs/developers/architecture.md exist."""

import re
from pathlib import Path

import vdev

ROOT = Path(vdev.__file__).parent
PAGE = (ROOT.parent / "docs" / "developers" / "architecture.md").read_text()


def test_the_files_and_folders_exist():
    """The numbered steps name them relative to `vdev/`."""
    steps = re.findall(r"^[0-9]+\. .*?(?=^[0-9]+\. |^\n|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    named = {name for step in steps for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", step)}
    assert named
    assert set() == {name for name in named if not (ROOT / name).exists()}
