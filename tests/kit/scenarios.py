"""The scenario files as test parameters."""

from pathlib import Path

import pytest

from vdev.sim.scenarios.scenario import built_in

FILES = Path(__file__).parents[1] / "sim" / "scenarios"


def scenarios():
    """Return a parameter for each file for device plugins."""
    return [pytest.param(path, id=path.stem) for path in sorted(FILES.glob("*.yaml"))]


def dra_scenarios():
    """Return a parameter for each file for DRA drivers."""
    return [pytest.param(path, id=f"dra-{path.stem}") for path in sorted((FILES / "dra").glob("*.yaml"))]


def built_in_scenarios():
    """Return a parameter for each built-in file, which is for any plugin."""
    return [pytest.param(each.path, id=f"built-in-{each.name}") for each in built_in()]
