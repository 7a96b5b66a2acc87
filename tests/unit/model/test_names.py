"""Device ids are stable, fit, and belong to one pair of entry and identity."""

from hypothesis import example, given
from hypothesis import strategies as st

from vdev.model import names

ENTRY = st.from_regex(names.ENTRY_NAME, fullmatch=True)
IDENTITY = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=20)


@given(ENTRY, IDENTITY, ENTRY, IDENTITY)
@example("a", "b-c", "a-b", "c")
@example("a", "1-1.2", "a-1", "1.2")
@example("a-b", "c_d-e", "a", "b-c_d-e")
def test_no_two_devices_share_an_id(one, its, other, others):
    """Whatever other entries the file has, an id means one device."""
    same = (one, its) == (other, others)
    assert same == (names.device_id(one, its) == names.device_id(other, others))


@given(ENTRY, st.text(min_size=1))
def test_an_id_fits_with_its_replica_suffix(entry, identity):
    """Any identity gives an id of plain characters that leaves room for `::<n>`."""
    got = names.device_id(entry, identity)
    assert names.MAX_ID - 9 >= len(got)
    assert set(got) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
