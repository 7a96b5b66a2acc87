"""What the other end of a serial line answers."""

from hypothesis import given
from hypothesis import strategies as st

from vdev.model.virtual_node import LineEnd
from vdev.planning.virtual_devices import MAX_LINE, Dialogue


@given(st.binary())
def test_an_echo_says_back_every_byte(data):
    """Any bytes, as they are."""
    assert data == Dialogue(LineEnd.ECHO).hear(data)


@given(st.binary())
def test_silence_says_nothing(data):
    """Whatever it hears."""
    assert b"" == Dialogue(LineEnd.SILENCE).hear(data)


@given(st.lists(st.integers(1, 5)))
def test_a_script_does_not_care_how_bytes_arrive(cuts):
    """A line may come in pieces, and several at once."""
    script = Dialogue(LineEnd.SCRIPT, {"AT": "OK", "ATI": "vdev"}, "ERROR")
    heard, rest = b"", b"AT\r\nATI\r AT \nwhat\n\n"
    for cut in [*cuts, 100]:
        heard += script.hear(rest[:cut])
        rest = rest[cut:]
    assert b"OK\r\nvdev\r\nOK\r\nERROR\r\n" == heard


def test_an_endless_line_is_forgotten():
    """A line without an end takes no more memory than the longest that counts."""
    script = Dialogue(LineEnd.SCRIPT, {"AT": "OK"})
    for _ in range(100):
        assert b"" == script.hear(b"x" * 1000)
    assert MAX_LINE == len(script.unfinished)
