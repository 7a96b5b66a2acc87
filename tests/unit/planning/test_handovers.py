"""Who holds a device, who gave it back, and what is done before the next container starts."""

from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vdev.planning import handovers
from vdev.planning.handovers import EMPTY, Handover

A, B = ("x.dev/a", "a-0"), ("x.dev/a", "a-1")
ONE, TWO = ("x.dev/a", "a-0::0"), ("x.dev/a", "a-0::1")


class Before(NamedTuple):
    """What is to be done before a container starts."""

    releases: tuple = ()
    arrivals: tuple = ()


def pre_start(*given):
    """The ledger, and what is to be done first."""
    ledger, *first = handovers.pre_start(*given)
    return ledger, Before(*first)


def started(*steps, ledger=EMPTY):
    """The ledger after pods (slots, name) got their devices one after the other, and who arrived."""
    arrived = []
    for keys, pod in steps:
        ledger = handovers.allocated(ledger, keys)
        ledger, before = pre_start(ledger, keys, dict.fromkeys(keys, pod) if pod else {})
        assert () == before.releases
        arrived += before.arrivals
        for each in before.arrivals:
            ledger = handovers.done(ledger, each)
    return ledger, arrived


def read(ledger, named, *held):
    """The ledger after a reading; `held` are slots that a pod may have without being named."""
    return handovers.read(ledger, named, lambda key: key in named or key in held)


def test_a_pod_holds_from_its_first_start_on():
    """An Allocate alone gives nobody a device: the pod may be refused."""
    ledger = handovers.allocated(EMPTY, [A])
    assert {} == ledger.tenants
    ledger, before = pre_start(ledger, [A], {A: "n/p"})
    arrival = Handover("x.dev/a", "a-0", 1, "n/p")
    assert Before(arrivals=(arrival,)) == before
    ledger, before = pre_start(ledger, [A], {A: "n/p"})  # the kubelet tries again while it is being done
    assert Before(arrivals=(arrival,)) == before
    ledger = handovers.done(ledger, arrival)
    assert Before() == pre_start(ledger, [A], {A: "n/p"})[1]  # a restart of the container
    assert () == read(handovers.allocated(EMPTY, [A]), {}).owed


def test_an_allocate_ends_who_had_it_before():
    """The next pod arrives when the release is done, and not before; a pod that was never seen by name counts."""
    ledger, _ = started(([A, B], ""))
    ledger = handovers.allocated(ledger, [A])
    first, second = ledger.owed
    assert ("a-0", "a-1") == (first.device, second.device)  # a pod ends with everything it has
    same, before = pre_start(ledger, [A], {A: "n/q"})
    assert (ledger, Before((first,))) == (same, before)
    ledger, before = pre_start(handovers.done(ledger, first), [A], {A: "n/q"})
    assert Before(arrivals=(Handover("x.dev/a", "a-0", 2, "n/q"),)) == before


def test_an_init_container_and_the_next_are_one_pod():
    """The same slots are allocated again before any container starts: nothing is released between them."""
    ledger = handovers.allocated(handovers.allocated(EMPTY, [A]), [A])
    ledger, before = pre_start(ledger, [A], {A: "n/p"})
    (arrival,) = before.arrivals
    ledger, before = pre_start(handovers.done(ledger, arrival), [A], {A: "n/p"})
    assert Before() == before
    assert () == ledger.owed


def test_an_init_container_may_have_more():
    """The pod keeps until its end what only its init container used."""
    ledger = handovers.allocated(handovers.allocated(EMPTY, [A, B]), [A])
    ledger, _ = pre_start(ledger, [A, B], {})
    ledger = read(ledger, {A: "n/p"})
    assert () == ledger.owed
    assert ["a-0", "a-1"] == [each.device for each in read(ledger, {}).owed]


def test_a_reading_ends_whom_nobody_can_be():
    """What may still be held is not released."""
    ledger, _ = started(([A], "n/p"))
    assert () == read(ledger, {}, A).owed
    assert (Handover("x.dev/a", "a-0", 1, "n/p"),) == read(ledger, {}).owed
    assert (Handover("x.dev/a", "a-0", 1, "n/p"),) == read(ledger, {A: "n/q"}).owed


def test_who_is_found_has_had_it():
    """Pods that held devices before this process do not arrive, and do release."""
    ledger = read(EMPTY, {A: "n/p"})
    ledger, before = pre_start(ledger, [A], {A: "n/p"})
    assert Before() == before
    assert ["n/p"] == [each.pod for each in read(ledger, {}).owed]


def test_replicas_of_one_pod_are_one_holding():
    """A pod holds a device once, in one container or in two; it gives it back when it ends."""
    assert 1 == len(started(([ONE, TWO], "n/p"))[1])
    ledger = handovers.allocated(handovers.allocated(EMPTY, [ONE]), [TWO])
    named = {ONE: "n/p", TWO: "n/p"}
    ledger, first = pre_start(ledger, [ONE], named)
    ledger, second = pre_start(handovers.done(ledger, *first.arrivals), [TWO], named)
    assert (1, 0) == (len(first.arrivals), len(second.arrivals))
    assert 1 == len(read(ledger, {}).owed)


def test_holders_of_a_shared_device_come_and_go_alone():
    """One pod's end is one release, and the next start on the device waits for it."""
    ledger, arrived = started(([ONE], "n/p"), ([TWO], "n/q"))
    assert ["n/p", "n/q"] == [each.pod for each in arrived]
    ledger = read(ledger, {TWO: "n/q"})
    assert ["n/p"] == [each.pod for each in ledger.owed]
    ledger = handovers.allocated(ledger, [ONE])
    assert ["n/p"] == [each.pod for each in pre_start(ledger, [ONE], {})[1].releases]


def test_releases_of_overlapping_devices_come_first():
    """Another name for the same hardware does not go round a release."""
    ledger, _ = started(([A], "n/p"))
    ledger = handovers.allocated(read(ledger, {}), [("x.dev/b", "b-0")])
    _, before = pre_start(ledger, [("x.dev/b", "b-0")], {}, [("x.dev/a", "a-0")])
    assert 1 == len(before.releases)


def _nobody(_key):
    return False


@dataclass(eq=False)
class Pod:
    """A pod of the model: the slots of its init container and of its own; when it has started, it holds."""

    name: str
    init: list
    app: list
    alive: bool = True
    started: bool = False

    @property
    def keys(self):
        """All its slots."""
        return {*self.init, *self.app}


SLOTS = [("r", f"{device}::{number}") for device in "ab" for number in range(2)]


class Node(RuleBasedStateMachine):
    """A kubelet gives out slots, pods start and end unseen, readings come when they like, releases take their time.

    The model's pods have unique names, and PodResources names no slot that only an init container has.
    """

    def __init__(self):
        super().__init__()
        self.ledger = EMPTY
        self.pods = []
        self.of = {}  # the pod of each holder's number
        self.arrived, self.done, self.released = set(), [], []

    def free(self):
        """What the kubelet may give out."""
        taken = {key for pod in self.pods if pod.alive for key in pod.keys}
        return [key for key in SLOTS if key not in taken]

    def named(self):
        """What PodResources says."""
        return {key: pod.name for pod in self.pods if pod.alive for key in pod.app}

    def holds(self, key):
        """Whether a pod may have it."""
        return any(pod.alive and key in pod.keys for pod in self.pods)

    @precondition(lambda self: self.free())
    @rule(data=st.data(), with_init=st.booleans())
    def admit(self, data, with_init):
        """Admit a pod: all of its slots are allocated, those of its init container first."""
        app = data.draw(st.lists(st.sampled_from(self.free()), min_size=1, unique=True))
        more = data.draw(st.lists(st.sampled_from(self.free()), unique=True)) if with_init else []
        pod = Pod(f"pod-{len(self.pods)}", [*dict.fromkeys([*app, *more])] if with_init else [], app)
        for keys in (pod.init, pod.app):
            self.ledger = handovers.allocated(self.ledger, keys)
        self.pods.append(pod)

    @precondition(lambda self: any(pod.alive for pod in self.pods))
    @rule(data=st.data(), by_name=st.booleans(), succeeds=st.booleans())
    def start(self, data, by_name, succeeds):
        """Start a container, or restart it; where something is owed, it does not start."""
        pod = data.draw(st.sampled_from([pod for pod in self.pods if pod.alive]))
        keys = pod.app if pod.started or not pod.init else pod.init
        self.ledger, before = pre_start(self.ledger, keys, self.named() if by_name else {})
        owed = {each.unit for each in self.ledger.owed}
        assert bool(before.releases) == any((r, slot.partition("::")[0]) in owed for r, slot in keys)
        if before.releases:
            return
        done = [each for each in before.arrivals if succeeds]
        for each in before.arrivals:
            assert self.of.setdefault(each.holder, pod) is pod
            self.arrived.add((pod.name, each.device))
        for each in done:
            self.done.append((pod.name, each.device))
            self.ledger = handovers.done(self.ledger, each)
        if done != list(before.arrivals):
            return
        pod.started = True
        gone = [(other.name, key) for other in self.pods if not other.alive for key in other.keys if key in keys]
        late = [(name, device) for name, (_, slot) in gone if (name, device := slot.partition("::")[0]) in self.arrived]
        assert set(late) <= set(self.released)

    @precondition(lambda self: any(pod.alive for pod in self.pods))
    @rule(data=st.data())
    def end(self, data):
        """A pod ends; nobody is told."""
        data.draw(st.sampled_from([pod for pod in self.pods if pod.alive])).alive = False

    @rule()
    def read(self):
        """A reading that is to be believed."""
        self.ledger = handovers.read(self.ledger, self.named(), self.holds)

    @rule()
    def read_too_early(self):
        """The agent and the kubelet start anew; the kubelet does not know its pods yet."""
        self.ledger = handovers.read(self.ledger, {}, lambda _: True)

    @precondition(lambda self: self.ledger.owed)
    @rule(data=st.data())
    def release(self, data):
        """A release is done."""
        each = data.draw(st.sampled_from(self.ledger.owed))
        self.released.append((self.of[each.holder].name, each.device))
        self.ledger = handovers.done(self.ledger, each)

    @invariant()
    def nothing_is_owed_for_the_living(self):
        """No release while the holder lives."""
        assert all(not self.of[each.holder].alive for each in self.ledger.owed)

    @invariant()
    def each_is_done_once(self):
        """No release and no arrival twice."""
        assert len(set(self.done)) == len(self.done)
        assert len(set(self.released)) == len(self.released)

    @invariant()
    def what_is_left_comes_with_the_last_reading(self):
        """Who arrived has been released, is owed a release, or gets one when all pods have ended."""
        last = handovers.read(self.ledger, {}, _nobody)
        owed = [(self.of[each.holder].name, each.device) for each in last.owed]
        assert sorted(self.arrived) == sorted([*self.released, *owed])


Node.TestCase.settings = settings(max_examples=settings().max_examples * 3 // 2, stateful_step_count=30)
TestNode = Node.TestCase
