"""Worlds repeat, hold, and notice what is wrong: each in a process that has nothing but them."""

import concurrent.futures
import sys

import pytest

from tests.kit.play import played
from vdev.worlds.mutants.known import KNOWN

# What happens, as `vdev.worlds.drawn_events` writes it. Numbers choose among what is there: resources by name, changes
# of the file by their place in `NodeModel.change`.
BOX, NPU = 0, 3
CUT, RENAME_BOX, RESIZE, MOVE, STRATEGY = 0, 6, 7, 8, 10
SHOWN = {  # a bad behaviour, and the fewest events that show it
    "drops ids that pods hold": [[30, "pod", BOX, 0, 0], [40, "edit", RESIZE, 0, 0]],
    "hands out partitions of what a pod holds": [
        [30, "pod", NPU, 0, 0],
        [40, "edit", CUT, 0, 2],
        [41, "edit", CUT, 1, 2],
        *([50 + number, "pod", 3, 0, 0] for number in range(5)),
    ],
    "lists an id in two resources": [[30, "pod", BOX, 0, 0], [40, "edit", RENAME_BOX, 0, 0]],
    "registers again beside an open stream": [[30, "rest", 0, 0, 0]],
    "registers once and never again": [[30, "kubelet restarts", 0, 0, 0]],
    "reuses sockets that a kubelet removed": [[30, "kubelet restarts", 0, 0, 0]],
    "never heals a device": [[30, "probe", 0, 1, 0]],
    "forgets over a restart what it listed": [
        [30, "pod", 1, 0, 0],
        [40, "agent ended", 0, 1, 30],
        *([41 + number, "edit", MOVE, number, 1] for number in range(3)),
        *([80 + number, "pod", 3, 0, 0] for number in range(6)),
    ],
    "writes no CDI files": [[30, "edit", STRATEGY, 1, 0], [40, "pod", BOX, 0, 0]],
    "grants what is Unhealthy": [
        [30, "kubelet slow", 3, 59, 0],
        *([32 + 2 * number, "probe", 0, number, 0] for number in range(12)),  # well, and broken
        *([34 + 4 * number - early, "pod", 2, 7, 0] for number in range(6) for early in (3.0, 2.0, 1.5, 1.0, 0.6, 0.3)),
    ],
    "tells no change on an open stream": [[30, "edit", RESIZE, 3, 0]],
}
SHOWN["keeps no record"] = SHOWN["forgets over a restart what it listed"]


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


def world(events, mutant="", seed=1):
    """A world in which these events happen, and a minute more."""
    events = sorted(events)
    return {"seed": seed, "seconds": events[-1][0] + 90, "events": events, "mutant": mutant}


@pytest.mark.parametrize("name", SHOWN)
def test_what_other_plugins_do_wrong_is_noticed(name):
    """And without it nothing is wrong."""
    good, bad = played(world(SHOWN[name]), world(SHOWN[name], name))
    assert not good["failure"], "\n".join(good["told"])
    assert bad["failure"]


@pytest.mark.parametrize("name", FOUND)
def test_what_worlds_found_is_mended(name):
    """The seed and the events that showed it show it no more."""
    seed, events = FOUND[name]
    (outcome,) = played(world(events, seed=seed))
    assert not outcome["failure"], "\n".join(outcome["told"])


def test_each_known_bad_behaviour_is_shown():
    """None is forgotten here."""
    assert KNOWN.keys() == SHOWN.keys()


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

PODS = [[30, "claim pod", 0, 3, 1], [31, "claim pod", 0, 3, 1]]  # each with two devices of the first driver
BAD = {  # others take a world longer to show: `python -m vdev.worlds --mutants` plays all
    "prepares claims without their CDI files": PODS,
    "answers unprepare and forgets nothing": [*PODS, [40, "delete", 0, 1, 0]],
    "publishes slices of an old generation": [[40, "claims edited", 0, 0, 0]],
    "keeps labels that are switched off": [  # by an agent that began with none, and may leave those of an earlier one
        [30, "claims edited", 6, 0, 0],
        [40, "agent killed", 0, 0, 0],
        [60, "claims edited", 6, 0, 0],
        [300, "rest", 0, 0, 0],
        [310, "claims edited", 6, 0, 0],
    ],
}
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


@pytest.mark.parametrize("name", BAD)
def test_what_other_drivers_do_wrong_is_noticed(name):
    """Bad behaviours of DRA drivers. And without it nothing is wrong."""
    good, bad = played(world(BAD[name], seed=3), world(BAD[name], name, seed=3))
    assert not good["failure"], "\n".join(good["told"])
    assert bad["failure"]


@pytest.mark.long
def test_claims_of_a_node():
    """Edits that move a device between device plugin and claims, a server that goes away, one with another store."""
    (outcome,) = played(world(STORY, seed=3))
    assert not outcome["failure"], "\n".join(outcome["told"])
