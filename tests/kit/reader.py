"""The environment of a reader of the documentation: vdev, and only what the page says to install."""

import os
import re
from pathlib import Path

from tests.kit import forkserver

ROOT = Path(__file__).parents[2]
_WITH_SIM = re.compile(r"pip install [^\n]*\[sim\]")


def has_cel(page: str) -> bool:
    """Whether the page says to install the extra `sim`, which has what evaluates selectors."""
    return _WITH_SIM.search(page) is not None


def environ(page: str, directory: Path) -> dict[str, str]:
    """An environment for the commands of a page: `vdev` is this checkout, and CEL cannot be imported unless the page
    says to install it. What is needed for that is put below the directory.
    """
    path = [str(ROOT)]
    if not has_cel(page):
        package = directory / "not-installed" / "cel_expr_python"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('the page does not say to install it')\n")
        path.insert(0, str(package.parent))
    vdev = forkserver.vdev_command(directory)
    return os.environ | {"PATH": f"{vdev}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(path)}
