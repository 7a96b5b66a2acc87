"""A container for the vendors' tools, in each shell."""

from pathlib import Path

import pytest

from tests.kit.smi_tools import SHELLS, Container, container


@pytest.fixture(params=SHELLS)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Container:
    """A container without devices."""
    return container(tmp_path, request.param)
