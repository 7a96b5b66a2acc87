"""Two runs are compared row by row, and noise is no verdict."""

import json
import random

import pytest

from bench.__main__ import main
from bench.table import report
from bench.table.row import Row, Run, sized, timed

FLOOR = 0.001


def rounds(middle, *, spread=0.05, count=12, each=160, seed=1):
    """Rounds of samples around the middle, some of them far above it."""
    chance = random.Random(seed)
    return [[middle * (1 + spread * chance.expovariate(1)) for _ in range(each)] for _ in range(count)]


def kept(tmp_path, name, *rows: Row, quick=False):
    """The file of a run with these rows."""
    run = Run(quick=quick)
    for row in rows:
        run.add(row)
    file = tmp_path / f"{name}.json"
    file.write_text(report.as_json(report.document(run, 1.0)))
    return file


def calls(middle, *, seed=1, machine=1.0, spread=0.05):
    """A row of calls, on a machine that is so much slower than another."""
    ours = rounds(middle * machine, seed=seed, spread=spread)
    return timed("calls", "one", ours, rounds(FLOOR * machine, seed=seed + 100, spread=spread))


def verdicts(capsys):
    """The last word of each line of the table, by row and unit."""
    cells = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    return {(each[0], each[1]): each[-1].strip("*") for each in cells[1:]}


@pytest.mark.parametrize(
    ("before", "now", "verdict", "code"),
    [
        (calls(0.0013), calls(0.0013, seed=2), "same", 0),
        (calls(0.0013), calls(0.0013, seed=2, machine=3), "same", 0),
        (calls(0.0013), calls(0.0018, seed=2), "worse", 3),
        (calls(0.0018), calls(0.0013, seed=2), "better", 0),
    ],
    ids=["again", "a slower machine", "worse", "better"],
)
def test_ratios_to_the_floor_are_compared(tmp_path, capsys, before, now, verdict, code):
    """A machine that is slower for both makes no row worse; a plugin that is slower does, with an exit code."""
    files = kept(tmp_path, "now", now), kept(tmp_path, "before", before)
    assert code == main(["--read", str(files[0]), "--compare", str(files[1])])
    assert [verdict] * 2 == list(verdicts(capsys).values())


def test_a_tail_is_worse_though_the_middle_is_not(tmp_path, capsys):
    """Three of a hundred calls take ten times as long."""
    ours = [[0.001] * 97 + [0.0012] * 3 for _ in range(10)]
    slow = [[0.001] * 97 + [0.01] * 3 for _ in range(10)]
    before, now = kept(tmp_path, "before", timed("g", "w", ours)), kept(tmp_path, "now", timed("g", "w", slow))
    assert main(["--read", str(now), "--compare", str(before)]) == 3
    assert {("g: w", "ms"): "same", ("g: w", "p99 ms"): "worse"} == verdicts(capsys)


def test_a_few_samples_that_differ_wildly_are_no_verdict(tmp_path, capsys):
    """The median is a fifth higher, but either run could have given it."""
    one = timed("g", "w", [[each] for each in (0.4, 1.4, 0.6, 1.0, 0.5, 1.9)], unit="s")
    other = timed("g", "w", [[each] for each in (1.1, 0.5, 1.5, 0.4, 0.9, 2.0)], unit="s")
    assert main(["--read", str(kept(tmp_path, "b", other)), "--compare", str(kept(tmp_path, "a", one))]) == 0
    assert {("g: w", "s"): "same"} == verdicts(capsys)


@pytest.mark.parametrize(
    ("unit", "before", "now", "verdict"),
    [
        ("MiB", 60.0, 60.9, "same"),
        ("MiB", 60.0, 63.0, "worse"),
        ("MiB", 60.0, 55.0, "better"),
        ("threads", 12, 13, "worse"),
        ("s", 0.0, 0.0, "same"),
        ("s", 0.08, 0.11, "same"),
    ],
)
def test_single_numbers_have_a_tolerance(tmp_path, capsys, unit, before, now, verdict):
    """Memory differs by a page here and there; a thread more is a thread more."""
    files = [
        kept(tmp_path, str(number), sized("g", "w", unit, value, None, None))
        for number, value in enumerate((now, before))
    ]
    main(["--read", str(files[0]), "--compare", str(files[1])])
    assert {("g: w", unit): verdict} == verdicts(capsys)


def test_what_cannot_be_compared_is_said(tmp_path, capsys):
    """Rows of one run alone, and what differs but the program."""
    before = kept(tmp_path, "before", sized("g", "old", "MiB", 1, None, None))
    now = kept(tmp_path, "now", sized("g", "new", "MiB", 1, None, None), quick=True)
    document = json.loads(before.read_text())
    document["machine"] |= {"cpu": "another", "cores": 2, "load": 7.5}
    before.write_text(json.dumps(document))
    assert main(["--read", str(now), "--compare", str(before)]) == 0
    said = capsys.readouterr().out
    assert "- not alike: cpu was another, is " in said
    assert "- not alike: the run now was a quick one" in said
    assert "- not alike: others used the machine before (load 7.5 on 2 cores)" in said
    assert "- only before: g, old\n- only now: g, new" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "no group is called 'nonsense'; expected allocate, "),
        (["--read", "x"], "--read needs --compare"),
        (["--read", "x", "--compare", "x", "allocate"], "--read measures nothing"),
        (["--compare", "/no/such/file"], "No such file"),
        (["--compare", "{empty}"], "not a run with its samples; make one with --json"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_measured(tmp_path, capsys, arguments, words):
    """Exit code 2, and what to do."""
    empty = tmp_path / "empty.json"
    empty.write_text('{"rows": [{"group": "g"}]}')
    with pytest.raises(SystemExit, match="2"):
        main([each.format(empty=empty) for each in arguments])
    assert words in capsys.readouterr().err
