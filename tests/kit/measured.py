"""Computes the sensor readings of a configuration's devices, with pods and faults, without an agent."""

from tests.kit.rules import rule
from vdev import config
from vdev.faults.targets import ActiveFaults
from vdev.model.device import EMPTY, replica_id
from vdev.planning import inventory
from vdev.planning.in_use import Holder, InUse
from vdev.planning.plan import ObservedState, desired_state
from vdev.telemetry.sensors import Sensors


def plan_of(text, node="node-1", **changes):
    """Return the plan of a configuration whose devices are all virtual."""
    spec = config.load_text(text).spec
    world = ObservedState(spec=spec, node=node, inventory=inventory.inventory(spec, node), **changes)
    return desired_state(world)


def ids(plan, resource):
    """Return the ids of a resource in order."""
    return [slot.id for slot in plan.advertised.resources[resource].slots]


def measured(text, *, users=None, at=1000.0, since=100.0, node="node-1", faults=None, pod_loads=EMPTY):
    """Return the readings of all devices. `users` are lists of `namespace/pod/container`, and `faults` the effects of
    rules; both by resource and index.
    """
    plan = plan_of(text, node)

    def key(place):
        return place[0], ids(plan, place[0])[place[1]]

    holders = {}
    for place, names in (users or {}).items():
        name, device = key(place)
        for number, each in enumerate(names):
            pod, _, container = each.rpartition("/")
            holders[name, replica_id(device, number)] = Holder(pod, container)
    hits = [(rule(**each), frozenset({key(place)})) for place, effects in (faults or {}).items() for each in effects]
    plan = plan_of(text, node, in_use=InUse(devices=holders), faults=ActiveFaults(tuple(hits)))
    sensors = Sensors()
    sensors.update(plan, pod_loads, since)
    return list(sensors.measured(at))
