"""Runs of the tests that are repeated with other seeds: what is said of them, and that a red one ends it."""

import io
import re
import sys

from tests.kit.again import again

GREEN = "import sys; print('...', *sys.argv[1:]); print('3 passed, 1 skipped in 0.10s')"
RED_AT_THE_SECOND = """
import pathlib, sys
file = pathlib.Path(sys.argv[1])
file.write_text(file.read_text() + "x" if file.exists() else "x")
if file.read_text() == "xx":
    sys.exit("FAILED test_it\\n= 1 failed, 2 passed in 0.20s =")
print("3 passed in 0.10s")
"""
ROW = re.compile(r"^\| (\d+) \| (\d+) \| (.*) \| \d+ \| \d+ \| [\d.]+ \|$", re.MULTILINE)


def test_each_run_has_a_seed_of_its_own():
    """One number for the order and for Hypothesis, a line for each run, and 0 where all are green."""
    out = io.StringIO()
    assert 0 == again(3, (sys.executable, "-c", GREEN), out)
    rows = ROW.findall(out.getvalue())
    assert [("1", "3 passed, 1 skipped"), ("2", "3 passed, 1 skipped"), ("3", "3 passed, 1 skipped")] == [
        (number, result) for number, _, result in rows
    ]
    assert 3 == len({seed for _, seed, _ in rows})
    assert out.getvalue().endswith("\n3 of 3 runs are green\n")


def test_a_red_run_is_the_last(tmp_path):
    """Its output is shown, and how to repeat it."""
    out = io.StringIO()
    assert 1 == again(5, (sys.executable, "-c", RED_AT_THE_SECOND, str(tmp_path / "runs")), out)
    rows = ROW.findall(out.getvalue())
    assert ["3 passed", "1 failed, 2 passed"] == [result for _, _, result in rows]
    seed = rows[-1][1]
    assert "FAILED test_it" in out.getvalue()
    assert f"run 2 of 5 is red; repeat it with --randomly-seed={seed} --hypothesis-seed={seed}\n" in out.getvalue()


def test_a_run_that_does_not_even_begin_is_red():
    """A plugin that is missing, an option that is wrong."""
    out = io.StringIO()
    assert 4 == again(2, (sys.executable, "-c", "raise SystemExit(4)"), out)
    assert ["exit code 4"] == [result for _, _, result in ROW.findall(out.getvalue())]
