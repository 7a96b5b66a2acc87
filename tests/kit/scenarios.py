"""The scenario files, for every test that plays them."""

from pathlib import Path

import pytest

FILES = Path(__file__).parents[1] / "sim" / "scenarios"


def scenarios():
    """One parameter per file for device plugins."""
    return [pytest.param(path, id=path.stem) for path in sorted(FILES.glob("*.yaml"))]


def dra_scenarios():
    """One parameter per file for DRA drivers."""
    return [pytest.param(path, id=path.stem) for path in sorted((FILES / "dra").glob("*.yaml"))]
