"""The holders of devices with actions."""

from vdev.planning.handovers import Holdings, Phase

KEY, OTHER = ("acme.dev/npu", "acme-0"), ("acme.dev/npu", "acme-1")
SHARES = [("acme.dev/npu", f"acme-2::{number}") for number in range(2)]


def started(*keys):
    """A pod with these slots, whose `onAllocate` has ended."""
    holdings = Holdings()
    holdings.allocate(keys)
    for each in holdings.start(keys, dict.fromkeys(keys, "default/a")):
        each.phase = Phase.HOLDING
    return holdings


def test_a_pod_that_ends_during_its_on_allocate_is_released():
    holdings = Holdings()
    holdings.allocate([KEY])
    (holding,) = holdings.start([KEY], {KEY: "default/a"})
    assert Phase.ARRIVING is holding.phase
    holdings.read({}, lambda key: False)
    assert [holding] == holdings.releases
    assert "default/a" == holding.pod


def test_an_allocate_releases_only_its_own_devices():
    """The next pod may get a device of an init container while the app container has the other one."""
    holdings = started(KEY, OTHER)
    holdings.allocate([OTHER])
    assert ["acme-1"] == [each.device for each in holdings.releases]
    assert {KEY} == holdings.started


def test_the_shares_of_a_pod_are_one_holding():
    """In one container or in several."""
    holdings = started(SHARES[0])
    holdings.allocate(SHARES[1:])
    assert [] == holdings.start(SHARES[1:], dict.fromkeys(SHARES, "default/a"))
    for each in (holdings, started(*SHARES)):
        each.read({}, lambda key: False)
        assert 1 == len(each.releases)


def test_the_shares_of_a_refused_pod_go_to_different_pods():
    """An Allocate of one share does not end the pod with the other one."""
    holdings = Holdings()
    holdings.allocate(SHARES)  # of a pod that is refused
    for share, pod in zip(SHARES, ("default/b", "default/c"), strict=True):
        holdings.allocate([share])
        (holding,) = holdings.start([share], {share: pod})
        assert ({share}, pod) == (holding.keys, holding.pod)
    assert [] == holdings.releases


def test_an_allocate_is_recorded_once():
    """A second Allocate before the start is for another container of the same pod."""
    holdings = Holdings()
    holdings.allocate([KEY])
    holdings.allocate([KEY, OTHER])
    assert [{KEY}, {OTHER}] == [each.keys for each in holdings.all]


def test_a_pod_with_the_name_of_one_that_ended():
    """It is another holder, even if no answer has left out the first one yet."""
    holdings = started(SHARES[0])
    holdings.allocate(SHARES[1:])
    named = {SHARES[1]: "default/a"}
    assert [{SHARES[1]}] == [each.keys for each in holdings.start(SHARES[1:], named)]
    holdings.read(named, lambda key: key == SHARES[1])
    assert [{SHARES[0]}] == [each.keys for each in holdings.releases]


def test_another_pod_has_the_slot():
    """Then the one before has ended, although the slot is still in use."""
    holdings = started(KEY)
    holdings.read({KEY: "default/b"}, lambda key: True)
    assert ["default/a"] == [each.pod for each in holdings.releases]
