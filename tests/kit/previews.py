"""Computes what a node would advertise for configuration files, like `vdev plan`."""

from collections.abc import Sequence
from pathlib import Path

from vdev.agent.options import Options
from vdev.cli import plan


def preview(files: Sequence[Path], *, node: str, host_root: Path) -> plan.Preview:
    return plan.preview(files, Options(node_name=node, host_root=host_root))
