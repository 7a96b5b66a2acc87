"""The plugin that is not vdev's (`foreign_plugin`) in processes that need not begin with nothing (see `mother`)."""

import sys
from pathlib import Path

from tests.kit import mother

FILE = Path(__file__).with_name("foreign_plugin.py")
python = mother.Program("VDEV_TESTS_PLUGIN", "tests.kit.prepared_plugin", str(FILE))
share = python.share


def _main(descriptor: str, _program: str) -> None:
    mother.wait(descriptor)
    from tests.kit import foreign_plugin

    sys.argv = [str(FILE), *mother.serve(descriptor)]
    mother.end_with(foreign_plugin.main)


if __name__ == "__main__":
    _main(*sys.argv[1:])
