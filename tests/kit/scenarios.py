"""The scenario files, for every test that plays them."""

from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "sim" / "scenarios").glob("*.yaml"))


def scenarios():
    """One parameter per file."""
    return [pytest.param(path, id=path.stem) for path in FILES]
