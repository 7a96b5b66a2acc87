"""Two instances of one driver share a record: for any sequence of calls, no device is prepared for two claims."""

import asyncio
import tempfile
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.kit import dra
from vdev.aio.clock import PRODUCTION_TIMING, LeapClock, Timing
from vdev.dra.checkpoint import Places
from vdev.dra.claims import ClaimRef, Claims
from vdev.dra.published_devices import PublishedPool

DRIVER = "gpu.acme.dev"
DEVICES = {f"gpu-{number}": dra.device(f"GPU-{number}", number) for number in range(3)}
SHARED = "gpu-2"
POOL = dra.pool(DRIVER, DEVICES, dra.resource(*DEVICES.values()), shared={SHARED})


class Api:
    """The claims, by name."""

    def __init__(self, documents):
        self._documents = documents

    async def get(self, _kind, name, *, namespace):
        """The claim with this name."""
        return self._documents[name] | {"namespace": namespace}


def _claims(places, documents, pool=POOL, on_change=lambda _claims: None, timing=PRODUCTION_TIMING):
    claims = Claims(dra.agent(Api(documents), timing), places, {}, on_change)
    claims.pool = pool
    return claims


@st.composite
def _results(draw, number):
    """The allocation of a claim: one or two devices, some with admin access, some shared."""
    found = []
    for place, device in enumerate(
        draw(st.lists(st.sampled_from(sorted(DEVICES)), min_size=1, max_size=2, unique=True))
    ):
        more = {"shareID": f"00000000-0000-4000-8000-{number:06}{place:06}"} if device == SHARED else {}
        if device != SHARED and draw(st.booleans()):
            more = {"adminAccess": True}
        found.append((f"r{place}", device, more))
    return found


def _exclusive(results):
    """The devices that a claim does not share."""
    return {device for _, device, more in results if not more}


CALLS = st.tuples(st.sampled_from(["prepare", "unprepare", "restart"]), st.integers(0, 1), st.integers(0, 3))


@given(results=st.tuples(*(_results(number) for number in range(4))), calls=st.lists(CALLS, max_size=15))
def test_no_device_is_prepared_for_two_claims(results, calls):
    """Two instances, four claims, repeated calls and restarts: every answer agrees with the record."""
    documents = {
        f"c{number}": dra.claim(f"c{number}", *each, driver=DRIVER, uid=f"uid-{number}")
        for number, each in enumerate(results)
    }

    async def play(directory):
        places = Places(driver=DRIVER, kubelet_dir=directory, cdi_dir=directory / "cdi")
        instances = [_claims(places, documents) for _ in range(2)]
        prepared = {}
        for call, instance, number in calls:
            ref = ClaimRef(namespace="default", uid=f"uid-{number}", name=f"c{number}")
            if call == "restart":
                instances[instance] = _claims(places, documents)
                await instances[instance].restore()
            elif call == "unprepare":
                assert {ref.uid: None} == await instances[instance].unprepare([ref])
                prepared.pop(number, None)
            else:
                answer = (await instances[instance].prepare([ref]))[ref.uid]
                taken = set().union(*(_exclusive(results[each]) for each in prepared if each != number))
                refused = bool(taken & _exclusive(results[number])) and number not in prepared
                assert refused is isinstance(answer, str), answer
                if not refused:
                    assert answer == prepared.setdefault(number, answer)
            files = {each.name for each in (directory / "cdi").glob("*")}
            assert {f"k8s.{DRIVER}-claim_uid-{each}.json" for each in prepared} == files

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(play(Path(directory)))


async def test_a_prepare_that_ends_too_late_is_reported(directory):
    """`on_change` is called when the claim is prepared, although the call has failed by then."""
    places = Places(driver=DRIVER, kubelet_dir=directory, cdi_dir=directory / "cdi")
    documents = {"c": dra.claim("c", ("r", "gpu-0"), driver=DRIVER, uid="uid-0")}
    clock, told, hangs, goes_on = LeapClock(), [], threading.Event(), threading.Event()

    class SlowPool(PublishedPool):
        @property
        def by_name(self):
            hangs.set()
            assert goes_on.wait(30)
            return POOL.by_name

    pool = SlowPool(DRIVER, POOL.offered)
    claims = _claims(places, documents, pool, on_change=told.append, timing=Timing(clock=clock))
    answers = asyncio.ensure_future(claims.prepare([ClaimRef(namespace="default", uid="uid-0", name="c")]))
    assert await asyncio.to_thread(hangs.wait, 30)
    clock.advance(41)
    assert "it was not prepared within 40 s" in (await answers)["uid-0"]
    assert [] == told
    goes_on.set()
    for _ in range(2):
        await claims.restore()  # waits for the call that hung
        assert [["uid-0"]] == [[*each] for each in told]
