"""Computes what a node would advertise for configuration files, like `vdev plan`."""

from collections.abc import Sequence
from pathlib import Path

from vdev.cli import plan
from vdev.cli.options import Settings


def preview(files: Sequence[Path], *, node: str, host_root: Path) -> plan.Preview:
    settings = Settings(node_name=node, host_root=host_root, run_dir=Path("/none"), state_dir=Path("/none"))
    return plan.preview(files, settings)
