"""The plugin that is not vdev's (`foreign_plugin`) in processes that need not begin with nothing (see `mother`)."""

import functools
import os
import sys
from pathlib import Path

from tests.kit import mother

FILE = Path(__file__).with_name("foreign_plugin.py")
_SHARED = "VDEV_TESTS_PLUGIN"


@functools.cache
def python() -> str:
    """A program that is Python, and has that file ready. Where it cannot be had it is Python itself."""
    if not mother.CAN:
        return sys.executable
    return os.environ.get(_SHARED) or mother.begin("tests.kit.prepared_plugin", str(FILE))


def share() -> None:
    """Make it now, for all processes that this one starts."""
    os.environ[_SHARED] = python()


def _main(descriptor: str, _program: str) -> None:
    mother.wait(descriptor)
    from tests.kit import foreign_plugin

    sys.argv = [str(FILE), *mother.serve(descriptor)]
    mother.end_with(foreign_plugin.main)


if __name__ == "__main__":
    _main(*sys.argv[1:])
