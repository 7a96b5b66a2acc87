"""Worlds repeat and hold: each in a process that has nothing but them."""

import concurrent.futures
import sys

import pytest

from tests.kit.play import played

FOUND = {  # what worlds found, by what was wrong: the seed and the fewest events
    "an agent whose directory another one serves by now registered a resource once more": (
        9,
        [[30, "pod", 1, 0, 0], [40, "kubelet wiped", 63, 0, 0], [40, "agent updated", 45, 0, 0]],
    ),
}


def world(events, seed=1):
    """A world in which these events happen, and some more time."""
    events = sorted(events)
    return {"seed": seed, "seconds": events[-1][0] + 140, "events": events}


@pytest.mark.parametrize("name", FOUND)
def test_what_worlds_found_is_mended(name):
    """The seed and the events that showed it show it no more."""
    seed, events = FOUND[name]
    (outcome,) = played(world(events, seed=seed))
    assert not outcome["failure"], "\n".join(outcome["told"])


ORDERS = [  # of what the system, the interpreter and protobuf keep in another order in each process
    *([30 + number, "claim pod", 0, 3, 1] for number in range(3)),
    [60, "agent updated", 19, 0, 0],  # two agents see the same file events
    *([62 + number, "edit", 10, number, 0] for number in range(3)),
    [70, "API away", 9, 0, 0],
    [100, "claim pod", 0, 3, 1],
    [110, "delete", 0, 1, 0],
]


@pytest.mark.long
def test_a_seed_repeats_beside_itself_and_after_others():
    """Message for message, in a process from the start and in a prepared one.

    There it is played at the same time, after another world, which takes what the system has numbered.
    """
    same, other = world(ORDERS, seed=3), world([[30, "pod", 1, 0, 0]], seed=4)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        alone = threads.submit(played, same, program=sys.executable)
        after = threads.submit(played, other, same)
    ((first,), (_, second)) = alone.result(), after.result()
    assert not first["failure"], "\n".join(first["told"])
    assert first["messages"] > 100
    assert (first["digest"], first["messages"]) == (second["digest"], second["messages"])


# --- with claims and an API server: seeds that three divides ----------------------------------------------------------

STORY = [
    [30, "pod", 1, 0, 0],  # has a gate, which then is for claims
    [60, "claims edited", 4, 0, 0],
    *([100 + number, "claim pod", 0, 3, 1] for number in range(4)),
    [130, "claims edited", 4, 0, 0],  # and back
    [160, "API away", 60, 0, 0],
    [170, "agent killed", 0, 0, 0],
    [190, "delete", 0, 1, 0],
]


@pytest.mark.long
def test_claims_of_a_node():
    """Edits that move a device between device plugin and claims, a server that goes away."""
    (outcome,) = played(world(STORY, seed=3))
    assert not outcome["failure"], "\n".join(outcome["told"])
