"""The ledger of handovers: due releases and arrivals."""

from vdev.planning import handovers
from vdev.planning.handovers import EMPTY, Occasion

KEY = ("acme.dev/npu", "acme-0")
NAMED = {KEY: "default/a"}


def test_a_pod_that_ends_during_its_on_allocate_is_released():
    """The end of `onAllocate` does not count as the end of the release, although both are about one pod and device."""
    ledger, (arrival,) = handovers.pre_start(handovers.record_allocate(EMPTY, [KEY]), [KEY], NAMED)
    assert arrival.occasion is Occasion.ALLOCATE
    ledger = handovers.read(ledger, {}, lambda key: False)
    ledger = handovers.done(ledger, arrival)
    (release,) = ledger.due
    assert (Occasion.RELEASE, "default/a") == (release.occasion, release.pod)
