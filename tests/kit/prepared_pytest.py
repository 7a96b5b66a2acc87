"""pytest in processes that need not begin with nothing, for tests that run it as a person does.

`python()` gives a program that stands for Python: `python -m pytest …` has imported pytest, its plugins and vdev (see
`mother`). What it starts as `sys.executable -m vdev` is a prepared process as well.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.kit import mother, prepared

python = mother.Program("VDEV_TESTS_PYTEST", "tests.kit.prepared_pytest", "-m pytest", prepared.python)


def share() -> None:
    """Make it now, for all processes that this one starts."""
    prepared.share()
    python.share()


class _ModulesAlone:
    """What looks for no tests in modules: that they are imported is enough."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self):
        return []


def collect(*arguments: str) -> bool:
    """Import what pytest needs, and modules of tests, as it does that itself; gives whether all could be."""
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "--collect-only", "-qqq"]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        code = pytest.main([*options, *arguments], plugins=[_ModulesAlone()])
    return code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def _main(descriptor, program, executable):
    mother.wait(descriptor)
    with tempfile.TemporaryDirectory() as nothing:
        collect("--rootdir", nothing, nothing)
    prepared.import_all()
    system = [each for each in sys.path[1:] if each not in _path()]
    sys.argv = [str(Path(pytest.__file__).with_name("__main__.py")), *mother.serve(descriptor)]
    sys.path[:] = [str(Path.cwd()), *_path(), *system]
    sys.executable = executable
    # At its end pytest removes what earlier runs left; that of others may be large, and one of them may be at it.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(Path(program).parent))
    mother.end_with(pytest.console_main)


def _path():
    return [str(Path(each).absolute()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


if __name__ == "__main__":
    _main(*sys.argv[1:])
