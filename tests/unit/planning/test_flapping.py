"""A device that comes and goes is believed at first, and must stay once it flickers."""

from vdev.intervals import PRODUCTION
from vdev.planning import health


def flicker(times, *, gap=0.05, known=None, start=0.0):
    """The device goes and comes `times` times, with `gap` seconds between; what is known, and when it ended."""
    now, known = start, dict(known or {})
    for _ in range(times):
        known = health.observe_flapping(known, lost=["a"], came=[], now=now + gap)
        known = health.observe_flapping(known, lost=[], came=["a"], now=now + 2 * gap)
        now += 2 * gap
    return known, now


def test_a_replug_is_counts_at_once():
    """One loss and one return hold nothing back."""
    known, now = flicker(1)
    assert {} == health.verdicts(known, now)
    assert None is health.look_again_at(known, now)


def test_slow_flaps_are_believed_each_time():
    """A device that stays for a while between its losses is told of each time."""
    known, now = flicker(30, gap=0.25)
    assert {} == health.verdicts(known, now)
    assert 30 == known["a"].losses


def test_flapping_ten_times_a_second_is_held_back_until_it_stays():
    """After a few flickers the device is Unhealthy, with the reason and the count, until it has stayed."""
    known, now = flicker(20)
    verdict = health.verdicts(known, now)["a"]
    assert (False, "it went away 20 times and must now stay for 1 s") == (verdict.healthy, verdict.reason)
    assert now + PRODUCTION.flicker_quiet == health.look_again_at(known, now)
    assert {} == health.verdicts(known, now + PRODUCTION.flicker_quiet)


def test_a_loss_while_it_is_held_back_prolongs_it():
    """What is not believed yet flickers by going again at any time before it is."""
    known, now = flicker(20)
    known = health.observe_flapping(known, lost=["a"], came=[], now=now + 0.9)
    known = health.observe_flapping(known, lost=[], came=["a"], now=now + 1.0)
    assert health.verdicts(known, now + 1.5)


def test_what_never_left_is_not_remembered():
    """A device that only appears needs no memory."""
    assert {} == health.observe_flapping({}, lost=[], came=["a"], now=1.0)
