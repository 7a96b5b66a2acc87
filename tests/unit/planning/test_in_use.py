"""Devices that pods may hold, by the kubelet's answers, its silences and its checkpoint."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.intervals import Intervals
from vdev.planning.in_use import UNKNOWN, Holder, HoldersReading, update

A, B, C = (("acme.dev/npu", f"acme-{number}") for number in range(3))
PATIENCE = Intervals(kubelet_grace=10.0, unnamed_allocate=5.0, retire_blind=600.0)
OLD, NEW = "the first kubelet", "the second kubelet"


def reading(at, answer=None, on_disk=(), *, kubelet=OLD, is_served=True):
    """An answer with these devices, each with its own pod, and a checkpoint with `on_disk`."""
    named = None
    if answer is not None:
        named = {key: Holder(f"default/pod-{key[1]}") for key in answer}
    checkpoint = {f"uid-{key[1]}": frozenset({key}) for key in on_disk}
    return HoldersReading(at, named, (), checkpoint, kubelet, is_served)


def after(*readings, known=UNKNOWN):
    for each in readings:
        known = update(known, each, PATIENCE)
    return known


def may_hold(known, key):
    return known.may_hold(key)


def test_an_answer_names_its_holders():
    """A device that a later answer of the same kubelet leaves out is free at once."""
    known = after(reading(0, [A]), reading(1, [A, B]))
    assert may_hold(known, A)
    assert may_hold(known, B)
    assert not may_hold(after(reading(0, [A]), reading(1, [])), A)


def test_silence_releases_nothing():
    """A pod that held a device at the last answer may hold it until the next answer."""
    known = after(reading(0, [A]), reading(1), reading(5000))
    assert may_hold(known, A)
    assert 1 == known.silent_since


def test_time_runs_out_if_pod_resources_never_answered():
    """After ten minutes in which a kubelet serves. Time without a kubelet does not count."""
    known = UNKNOWN.with_allocated([C], 1)
    down = after(reading(100, None, [B], is_served=False), reading(5000, is_served=False), known=known)
    assert {B, C} == down.all()
    silent = after(reading(6000, None, [B]), reading(6599, None, [B]), known=down)
    assert {B, C} == silent.all()
    assert not silent.is_complete
    for at in (6600, 6700):  # the checkpoint does not restart the time
        silent = after(reading(at, None, [B]), known=silent)
        assert not silent.all()
        assert silent.is_complete
    assert {C} == silent.with_allocated([C], 6750).all()


def test_a_silence_after_an_answer_releases_nothing():
    """Pods that were allocated before and during the silence may still run."""
    known = after(reading(0, [A]), reading(20, [A])).with_allocated([C], 30)
    silent = after(reading(100, None, [A, B, C]), reading(5000, None, [A, B, C]), known=known)
    assert {A, B, C} == silent.all()
    assert not silent.is_complete


def test_a_silent_kubelets_checkpoint_adds_its_devices():
    """The kubelet may have answered before, or never."""
    assert may_hold(after(reading(0, None, [B])), B)
    assert may_hold(after(reading(0, [A], []), reading(1, None, [B])), B)


@pytest.mark.parametrize("gap", [True, False], ids=["after a silence", "at once"])
def test_an_empty_answer_of_a_new_kubelet_is_not_trusted(gap):
    """A kubelet answers without pods for a second after its start. Devices stay in use for the grace period."""
    silence = [reading(1)] if gap else []
    before = [reading(0, [A], [A]), *silence]
    assert may_hold(after(*before, reading(2, [], [A], kubelet=NEW)), A)
    assert may_hold(after(*before, reading(2, [], kubelet=NEW), reading(11, [], kubelet=NEW)), A)
    assert not may_hold(after(*before, reading(2, [], kubelet=NEW), reading(12, [], kubelet=NEW)), A)


def test_a_new_kubelet_releases_devices_that_it_has_named():
    """A pod that this kubelet has named can end before the grace period does."""
    new = [reading(1, [], [A], kubelet=NEW), reading(2, [A], [A], kubelet=NEW), reading(3, [], [A], kubelet=NEW)]
    assert not may_hold(after(reading(0, [A], [A]), *new), A)


def test_the_first_answer_of_all_is_checked_against_the_checkpoint():
    """After the start of vdev, devices in the checkpoint may be held even if the answer leaves them out."""
    assert may_hold(after(reading(0, [], [A])), A)
    assert not may_hold(after(reading(0, [], [])), A)


def test_devices_in_the_checkpoint_stay_in_use():
    """List makes the kubelet remove ended pods from its checkpoint."""
    known = after(reading(0, [], [A, B]), reading(6, [], [A, B]), reading(11, [], [A]))
    assert may_hold(known, A)
    assert not may_hold(known, B)
    for at in (20, 40, 500):
        known = update(known, reading(at, [], [A]), PATIENCE)
    assert may_hold(known, A)
    assert not may_hold(update(known, reading(501, [], []), PATIENCE), A)


def test_devices_only_in_the_checkpoint_time_out():
    """The checkpoint names the pod that was admitted last even after it ended. The time starts only once."""
    known = after(reading(0, [], [A]), reading(599, [], [A]))
    assert may_hold(known, A)
    for at in (600, 601, 700):
        known = update(known, reading(at, [], [A]), PATIENCE)
        assert not may_hold(known, A)


def test_a_kubelet_that_does_not_know_its_pods_yet_releases_nothing():
    """A kubelet without its API server answers without pods for longer than the grace period."""
    known = after(reading(0, [A], [A]))
    for at in range(2, 30, 4):  # each List makes it write its checkpoint
        late = reading(at, [], [A], kubelet=NEW)
        known = update(known, late)
        assert may_hold(known, A)
    named = update(known, reading(31, [A], [A], kubelet=NEW))
    assert may_hold(named, A)
    assert not may_hold(update(named, reading(32, [], [A], kubelet=NEW)), A)
    assert not may_hold(update(known, reading(32, [], [], kubelet=NEW)), A)


def test_an_init_containers_device_is_held():
    """Only the checkpoint names it, not the answer. Another pod may have had the device before."""
    known = after(reading(0, [A], [A]), reading(20, [], [A]), reading(21, [], []))
    known = update(known.with_allocated([A], 30), reading(31, [], [A]), PATIENCE)
    assert may_hold(known, A)
    known = update(known, reading(60, [], [A]), PATIENCE)
    assert may_hold(known, A)


def test_recorded_devices_are_in_use_until_an_answer_is_trusted():
    """Without a checkpoint, an answer of a kubelet that does not know its pods yet releases nothing."""
    known = update(UNKNOWN.with_recorded([A, B], 0), reading(0, []), PATIENCE)
    assert may_hold(known, A)
    known = update(known, reading(5, [A]), PATIENCE)
    assert may_hold(known, B)
    known = update(known, reading(10, [A]), PATIENCE)
    assert may_hold(known, A)
    assert not may_hold(known, B)


def test_an_allocate_counts_until_its_pod_is_named_or_a_timeout():
    """An answer names a pod some time after its Allocate, and never if the kubelet rejected it."""
    known = after(reading(0, []), reading(29, [])).with_allocated([A, B], 30.0)
    known = update(known, reading(31, [A]), PATIENCE)
    assert {A, B} == known.all()
    assert {B} == known.awaited
    known = update(known, reading(34.9, [A]), PATIENCE)
    assert {A, B} == known.all()
    assert {A} == update(known, reading(35, [A]), PATIENCE).all()


def test_an_answer_from_before_an_allocate_is_about_another_pod():
    """The device is allocated again between the question and the answer."""
    known = after(reading(0, [A]), reading(20, [A])).with_allocated([A], 30.0)
    for answer in ([A], []):
        late = update(known, reading(29.9, answer, [A]), PATIENCE)
        assert {A} == late.awaited
        assert {} == late.pods
        assert may_hold(update(late, reading(31, [], [A]), PATIENCE), A)


def test_a_silent_or_new_kubelet_releases_no_allocate():
    """A pod may have been admitted just before the kubelet stopped."""
    silent = after(reading(0, [])).with_allocated([A], 1.0)
    silent = update(silent, reading(100), PATIENCE)
    assert may_hold(silent, A)
    young = update(silent, reading(107, [], kubelet=NEW), PATIENCE)
    assert may_hold(young, A)
    assert not may_hold(update(young, reading(117, [], kubelet=NEW), PATIENCE), A)


KEYS = st.sets(st.sampled_from([("acme.dev/npu", f"acme-{number}") for number in range(4)]))


@given(
    pods=st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=12),
    kubelets=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    gaps=st.lists(st.floats(0.1, 6), min_size=12, max_size=12),
    modes=st.lists(st.sampled_from(["full", "empty", "silent"]), min_size=12, max_size=12),
)
def test_a_held_device_is_always_in_use(pods, kubelets, gaps, modes):
    """With app and init containers, restarts, empty answers within the grace period, and silences.

    As the kubelet's, the checkpoint names all held devices and those held when it was last written.
    """
    known, now, kubelet, started, ready, stale = UNKNOWN, 0.0, 0, 0.0, False, frozenset()
    before: tuple[set[tuple[str, str]], set[tuple[str, str]]] = (set(), set())
    for (apps, others), restart, gap, mode in zip(pods, kubelets, gaps, modes, strict=False):
        now += gap
        inits = others - apps  # an app container reuses devices of the pod's init container
        if restart == 0:
            kubelet, started, ready = kubelet + 1, now, False
        held = frozenset(apps | inits)
        known = known.with_allocated((apps - before[0]) | (inits - before[1]), now)
        ready = ready or mode == "full" or now - started >= 1.0
        young = not ready
        app = dict.fromkeys(apps, Holder("default/app"))
        answer = {} if mode == "empty" and young else app
        stale = held | (stale if young or mode == "silent" else frozenset())
        pods = {"app": frozenset(apps), "stale": stale - held} | {key[1]: frozenset({key}) for key in inits}
        told = HoldersReading(now, None if mode == "silent" else answer, (), pods, kubelet)
        known = update(known, told, replace(PATIENCE, unnamed_allocate=0.0))
        assert held <= known.all()
        before = (apps, inits)
