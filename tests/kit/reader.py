"""Pages of the documentation: their code blocks, and the environment of a reader who follows a page."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tests.kit import forkserver

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[a-z]+)(?:: (?P<name>\S+))?[^>]*-->\n)?^```(?P<lang>\w*)\n(?P<text>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
_NAME = re.compile(r"# (\S+\.(?:yaml|sh|py))\b")
_WITH_SIM = re.compile(r"pip install [^\n]*\[sim\]")


@dataclass(frozen=True)
class Block:
    """A fenced block. The comment before it has its mark; the file name is in this comment or in the first line."""

    mark: str
    language: str
    text: str
    file: str


def blocks(page: str, language: str = "") -> list[Block]:
    """Return the fenced blocks of a page in all languages or in one."""
    found = []
    for each in _BLOCK.finditer(page):
        name = _NAME.match(each["text"])
        file = each["name"] or (name[1] if name else "")
        if language in ("", each["lang"]):
            found.append(Block(each["mark"] or "", each["lang"], each["text"], file))
    return found


def has_cel(page: str) -> bool:
    """Whether the page says to install the extra `sim`, which includes CEL."""
    return _WITH_SIM.search(page) is not None


def environ(page: str, directory: Path) -> dict[str, str]:
    """Return the environment for the commands of a page: `vdev` is this checkout, and CEL cannot be imported unless
    the page says to install it. Files for this are written below the directory.
    """
    path = [str(ROOT)]
    if not has_cel(page):
        package = directory / "not-installed" / "cel_expr_python"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('the page does not say to install it')\n")
        path.insert(0, str(package.parent))
    vdev = forkserver.vdev_command(directory)
    return os.environ | {"PATH": f"{vdev}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(path)}
