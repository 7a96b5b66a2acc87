"""The scenario files, for every test that plays them."""

from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "sim" / "scenarios").glob("*.yaml"))
FORGETS = "the agent forgets who holds what"
PENDING = {
    "rename-plugin-restart": f"{FORGETS}: a new process knows no more of a held id than its name",
    "repartition-kubelet-restart": f"{FORGETS} while PodResources is silent",
    "repartition-plugin-restart": f"{FORGETS}: a new process knows no more of a held id than its name",
    "unsharing-plugin-restart": f"{FORGETS}: a new process knows no more of a held id than its name",
}


def scenarios():
    """One parameter per file; what the agent cannot do yet must fail."""
    return [
        pytest.param(
            path,
            id=path.stem,
            marks=[pytest.mark.xfail(reason=PENDING[path.stem], strict=True)] if path.stem in PENDING else [],
        )
        for path in FILES
    ]
