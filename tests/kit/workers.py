"""Workers of a run of several that need not begin with nothing: one process imports all tests, and copies itself.

To import the tests takes five times as long as to collect them then. What the copies collect is what they would have
collected by themselves: pytest takes a module of tests that is there already as it is.
"""

import os
import shlex
import sys

import execnet

from tests.kit import mother, prepared, prepared_pytest

_EXECNET = "-u -c"  # how it starts Python; the code, which comes next, reads more code from the standard input


def prepare(specs: list[execnet.XSpec], arguments: list[str]) -> None:
    """Let those be the workers; `arguments` are the places of the tests."""
    if mother.CAN:
        program = shlex.quote(mother.begin("tests.kit.workers", _EXECNET, *arguments))
        specs[:] = [execnet.XSpec(f"{each}//python={program}") if each.popen else each for each in specs]


def _main(descriptor, program, *arguments):
    if arguments and not prepared_pytest.collect(*arguments):
        # A module that could not be imported would be there all the same: nobody would see why, or that its tests lack.
        os.execv(sys.executable, [sys.executable, "-m", "tests.kit.workers", descriptor, program])
    prepared.import_all()  # what tests import as they go
    if arguments:
        _draw()
    code, *sys.argv[1:] = mother.serve(descriptor)
    sys.argv[0] = "-c"
    mother.end_with(lambda: exec(code, {"__name__": "__main__"}))


def _draw():
    """Have what Hypothesis makes once in a process: tables of Unicode, and the constants of all modules."""
    from hypothesis import given, settings  # by now pytest has seen to how it is imported
    from hypothesis.strategies import floats, integers, text

    settings(max_examples=50, database=None)(given(text() | integers() | floats())(lambda _: None))()


if __name__ == "__main__":
    _main(*sys.argv[1:])
