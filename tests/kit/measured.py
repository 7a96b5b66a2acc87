"""The sensors of the devices of a configuration, with pods and faults, without an agent."""

from vdev import config
from vdev.planning import inventory
from vdev.planning.plan import ObservedState, desired_state
from vdev.telemetry.sensors import LoadSituation, Sensors, User
from vdev.telemetry.tool_data import loads_of


def plan_of(text, node="node-1", **changes):
    """The plan of a configuration whose devices are all virtual."""
    spec = config.load_text(text).spec
    world = ObservedState(spec=spec, node=node, inventory=inventory.inventory(spec, node), **changes)
    return desired_state(world)


def ids(plan, resource):
    """The ids of a resource, in order."""
    return [slot.id for slot in plan.advertised.resources[resource].slots]


def measured(text, *, users=None, at=1000.0, since=100.0, node="node-1", xids=None, sensors=None):
    """The readings of all devices. `users` are lists of `namespace/pod/container` by resource and index."""
    plan = plan_of(text, node)
    found = {}
    for (resource, index), names in (users or {}).items():
        device = ids(plan, resource)[index]
        found[device] = [User(*name.split("/")) for name in names]
    situation = LoadSituation(
        devices=plan.devices,
        base=plan.observed.inventory,
        loads=loads_of(plan),
        users=found,
        xids={ids(plan, resource)[index]: numbers for (resource, index), numbers in (xids or {}).items()},
        sensors={ids(plan, resource)[index]: faults for (resource, index), faults in (sensors or {}).items()},
        node=node,
    )
    sensors_now = Sensors()
    sensors_now.update(situation, since)
    return list(sensors_now.measured(at))
