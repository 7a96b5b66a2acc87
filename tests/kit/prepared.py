"""Processes of vdev that need not begin with nothing: a prepared one has imported everything, and copies itself.

`python()` gives a program that stands for Python: `python -m vdev …` is a process of its own for a tenth of the
processor time (see `mother`).

What has to begin with nothing asks for `sys.executable`: tests of what is imported and when, of memory, of signals
during the imports, of processes that are stopped (SIGSTOP) or looked at by id: the id of such a process is that of its
stand-in (`prepared_client`), which hands signals on.
"""

import contextlib
import importlib
import os
import pkgutil
import sys
from pathlib import Path

from tests.kit import mother

_LEFT_ALONE = ("vdev.pytest_plugin", "vdev.__main__")

python = mother.Program("VDEV_TESTS_PYTHON", "tests.kit.prepared", "-m vdev")
share = python.share


def command(directory: Path) -> Path:
    """Make a directory for PATH below this one, whose `vdev` is `python -m vdev`."""
    shim = directory / "bin" / "vdev"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{python()}" -m vdev "$@"\n')
    shim.chmod(0o755)
    return shim.parent


def import_all() -> None:
    """Import every module of vdev that can be had, and what they need."""
    import vdev

    for each in pkgutil.walk_packages(vdev.__path__, "vdev."):
        if each.name not in _LEFT_ALONE and not each.name.startswith("vdev.testing"):
            with contextlib.suppress(ImportError):
                importlib.import_module(each.name)


def _main(descriptor, program):
    mother.wait(descriptor)
    sys.modules["rich"] = None  # as `vdev run` does it
    import_all()
    sys.argv = [str(mother.ROOT / "vdev" / "__main__.py"), *mother.serve(descriptor)]
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))  # of what is imported from now on
    sys.executable = program  # what it starts itself as `python -m vdev` is one of these again
    mother.end_with(_vdev)


def _vdev():
    from vdev.__main__ import main

    return main()


if __name__ == "__main__":
    _main(*sys.argv[1:])
