"""Worlds repeat and hold: each in a process that has nothing but them."""

import concurrent.futures
import sys

import pytest

from tests.kit.play import played

FOUND = {  # what worlds found, by what was wrong: the seed and the fewest events
    "what time had settled was doubted anew, and listed in two resources": (
        5105,
        [
            [230.888, "edit", 9409, 3020, 3893],
            [258.309, "pod", 2685, 7243, 1126],
            [298.36, "agent killed", 1782, 2841, 1975],
            [336.936, "edit", 762, 9963, 7774],
        ],
    ),
    "an agent whose directory another one serves by now registered a resource once more": (
        2089053732,
        [
            [26.547, "agent killed", 3223, 3233, 6092],
            [241.883, "claim pod", 8296, 295, 1369],
            [241.892, "claims edited", 1206, 145, 4780],
            [468.458, "cell", 1075, 6692, 1497],
            [557.735, "claim pod", 8976, 95, 4430],
            [615.98, "kubelet crashes", 7422, 4228, 8354],
            [616.135, "edit", 9005, 8778, 8034],
            [626.248, "API restored", 683, 8615, 8636],
            [946.766, "claim pod", 4963, 3629, 5085],
            [1040.555, "pod", 9022, 8232, 9426],
            [1189.909, "plug", 9757, 8264, 1613],
            [1189.924, "finish", 8944, 2648, 4392],
            [1259.581, "kubelet wiped", 5580, 7844, 1187],
            [1259.581, "agent updated", 7527, 335, 5066],
        ],
    ),
    "a file that is spoilt on the way of a driver's answer was the driver's mistake": (
        3,
        [
            event
            for number in range(8)
            for event in (
                [30 + 5 * number, "claim pod", 0, 3, 1],
                [30.005 + 5.001 * number, "CDI spoilt", 0, 0, 0],
                [33 + 5 * number, "delete", 0, 0, 0],
            )
        ],
    ),
}


def world(events, seed=1):
    """A world in which these events happen, and a minute more."""
    events = sorted(events)
    return {"seed": seed, "seconds": events[-1][0] + 90, "events": events}


@pytest.mark.parametrize("name", FOUND)
def test_what_worlds_found_is_mended(name):
    """The seed and the events that showed it show it no more."""
    seed, events = FOUND[name]
    (outcome,) = played(world(events, seed=seed))
    assert not outcome["failure"], "\n".join(outcome["told"])


@pytest.mark.long
def test_a_seed_repeats_message_for_message():
    """Two processes that know nothing of each other play the same world: the prepared one, and one from the start."""
    (first,), (second,) = (played({"seed": 3, "seconds": 600.0}, program=each) for each in ("", sys.executable))
    assert not first["failure"], "\n".join(first["told"])
    assert first["messages"] > 100
    assert (first["digest"], first["messages"]) == (second["digest"], second["messages"])


ORDERS = [  # of what the system, the interpreter and protobuf keep in another order in each process
    *([30 + number, "claim pod", 0, 3, 1] for number in range(3)),
    [60, "agent updated", 19, 0, 0],  # two agents see the same file events
    *([62 + number, "edit", 10, number, 0] for number in range(8)),
    [100, "API away", 9, 0, 0],
    [130, "API watches end", 0, 0, 0],
    [140, "claim pod", 0, 3, 1],
    [160, "API away", 9, 0, 0],
    [190, "delete", 0, 1, 0],
]


@pytest.mark.long
def test_a_seed_repeats_beside_itself_and_after_others():
    """It is played alone, and at the same time after another world, which takes what the system has numbered."""
    same, other = world(ORDERS, seed=3), world([[30, "pod", 1, 0, 0]], seed=4)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        alone = threads.submit(played, same)
        after = threads.submit(played, other, same)
    ((first,), (_, second)) = alone.result(), after.result()
    assert not first["failure"], "\n".join(first["told"])
    assert (first["digest"], first["messages"]) == (second["digest"], second["messages"])


# --- with claims and an API server: seeds that three divides ----------------------------------------------------------

STORY = [
    [30, "pod", 1, 0, 0],  # has a gate, which then is for claims
    [60, "claims edited", 7, 0, 0],
    *([100 + number, "claim pod", 0, 3, 1] for number in range(4)),
    [130, "claims edited", 7, 0, 0],  # and back
    [150, "API restored", 0, 0, 0],
    [160, "API away", 60, 0, 0],
    [170, "agent killed", 0, 0, 0],
    [190, "delete", 0, 1, 0],
]


@pytest.mark.long
def test_claims_of_a_node():
    """Edits that move a device between device plugin and claims, a server that goes away, one with another store."""
    (outcome,) = played(world(STORY, seed=3))
    assert not outcome["failure"], "\n".join(outcome["told"])
