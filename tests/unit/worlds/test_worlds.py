"""Simulated worlds are deterministic and keep the invariants."""

import concurrent.futures

import pytest

from tests.kit.play import played


def world(events, seed):
    """A world with these events, and some time after the last one."""
    events = sorted(events)
    return {"seed": seed, "seconds": events[-1][0] + 140, "events": events}


# A former bug: an agent registered a resource again although another agent already served its directory.
FOUND = [[30, "pod", 1, 0, 0], [40, "kubelet wiped", 63, 0, 0], [40, "agent updated", 45, 0, 0]]
ORDERS = [  # events that depend on orders of the system, the interpreter and protobuf, which differ between processes
    *([30 + number, "claim pod", 0, 3, 1] for number in range(3)),
    [60, "agent updated", 19, 0, 0],  # two agents see the same file events
    *([62 + number, "edit", 10, number, 0] for number in range(3)),
    [70, "API away", 9, 0, 0],
    [100, "claim pod", 0, 3, 1],
    [110, "delete", 0, 1, 0],
]


@pytest.mark.long
def test_worlds_are_deterministic():
    """A world sends the same messages in a new process, at the same time in another, and after another world.

    A world with claims and an API server has a seed that is divisible by three.
    """
    found, same = world(FOUND, seed=9), world(ORDERS, seed=3)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        alone = threads.submit(played, same)
        after = threads.submit(played, found, same)
    outcomes = [*alone.result(), *after.result()]
    for each in outcomes:
        assert not each["failure"], "\n".join(each["told"])
    first, _, last = outcomes
    assert first["messages"] > 100
    assert (first["digest"], first["messages"]) == (last["digest"], last["messages"])
