"""Fake hosts with devices."""

from pathlib import Path

import pytest

from tests.kit.fakehost import FakeHost

KIT = Path(__file__).parents[2] / "kit"


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "empty")


@pytest.fixture
def server(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "server").add((KIT / "server.yaml").read_text())


@pytest.fixture
def desk(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "desk").add((KIT / "workstation.yaml").read_text())
