"""Recorded loads: which files can be played, and what they come to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.core.telemetry.replay import ReplayError, series


def test_rows_hold_until_the_next_and_the_end_is_the_beginning():
    """An empty cell goes on with the value above, and the last row lasts as long as the one before."""
    played = series(["time,gpu,memory\n", "100,10,1\n", "110,,50\n", "\n", "130,70,\n"])
    assert [played.level(played.gpu, at) for at in (0, 9, 10, 29, 30, 49, 50)] == [10, 10, 10, 10, 70, 70, 10]
    assert [played.level(played.memory, at) for at in (0, 10, 35)] == [1, 50, 50]
    assert played.total(50) == 10 * 30 + 70 * 20
    assert played.total(125) == 2 * played.total(50) + 250


def test_columns_may_stand_in_any_order_and_memory_may_be_missing():
    """As spreadsheets write them, with a byte order mark and Windows' ends of lines."""
    played = series(["\ufeffGPU, Time\r\n", "5,0\r\n", "6,1\r\n"])
    assert list(played.gpu) == [5, 6]
    assert list(played.memory) == [0, 0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: a column has no name"),
        (["time,gpu\n"], "line 1: there are no rows below the names of the columns"),
        (["time,memory\n", "0,1\n"], "line 1: the column 'gpu' is missing"),
        (["time,gpu,fan\n", "0,1,2\n"], "line 1: there is no column 'fan'"),
        (["time,gpu,gpu\n", "0,1,2\n"], "line 1: the column 'gpu' is there twice"),
        (["0,1\n"], "line 1: there is no column '0'"),
        (["time,gpu\n", "0,1,2\n"], "line 2: 3 cells under 2 columns"),
        (["time,gpu\n", "0,1\n", "5\n"], "line 3: 1 cells under 2 columns"),
        (["time,gpu\n", "0,1\n", "0,2\n"], "line 3: time 0 is not after 0"),
        (["time,gpu\n", "10,1\n", "9,2\n"], "line 3: time 9 is not after 10"),
        (["time,gpu\n", "0,\n"], "line 2: there is no gpu"),
        (["time,gpu\n", ",5\n"], "line 2: there is no time"),
        (["time,gpu\n", "0,x\n"], "line 2: gpu is 'x', which is no number"),
        (["time,gpu\n", "0,101\n"], "line 2: gpu is 101"),
        (["time,gpu\n", "0,nan\n"], "line 2: gpu is 'nan', which is no number"),
        (["time,gpu,memory\n", "0,1,-1\n"], "line 2: memory is -1"),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_line(lines, message):
    """Each kind of mistake once."""
    with pytest.raises(ReplayError) as caught:
        series(lines)
    assert str(caught.value) == message


def test_many_rows_are_taken_one_by_one():
    """From a source that could not be held: no more than the numbers is kept."""
    rows = (f"{number},{number % 100},{number % 50}\n" for number in range(200_000))
    played = series(line for source in (["time,gpu,memory\n"], rows) for line in source)
    assert played.length == 200_000
    assert played.total(200_000) == pytest.approx(49.5 * 200_000)


@given(st.lists(st.text(max_size=20), max_size=6))
def test_any_text_is_played_or_refused(lines):
    """And nothing else is raised."""
    try:
        played = series(lines)
    except ReplayError:
        return
    assert played.length > 0
