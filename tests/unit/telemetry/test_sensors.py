"""What loads the devices of a node: patterns, pods and what they say, partitions and replicas."""

import pytest

from tests.kit.measured import ids, measured, plan_of
from vdev.model.telemetry import Range
from vdev.telemetry.sensors import LoadSituation, Sensors, User

GPU = "nvidia.com/gpu"
CONFIG = """
flags: {migStrategy: mixed}
telemetry: {}
devices:
- {name: a, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 2}, partitions: {"1": all-balanced}%s}
"""


def situation(plan, pods=None, **changes):
    """The devices of a plan; `pods` are `namespace/name` by the id of a device."""
    users = {device: [User(*pod.split("/"), "main") for pod in mine] for device, mine in (pods or {}).items()}
    return LoadSituation(devices=plan.devices, base=plan.base, loads=plan.loads, users=users, **changes)


def load_of(sensors, device, at):
    """The load of a device or partition at an instant, in percent."""
    (found,) = sensors.measured(at, {device})
    return found.own.gpu_percent


def load(plan, device, *pods, at=100.0, **changes):
    """The load of a device that these pods hold."""
    sensors = Sensors()
    sensors.settle(situation(plan, {device: pods}, **changes), at)
    return load_of(sensors, device, at)


def test_a_device_without_a_pod_is_idle_unless_it_is_always_loaded():
    """And one with a pod has the entry's pattern."""
    plan = plan_of(CONFIG % "")
    device = ids(plan, GPU)[0]
    assert load(plan, device) == 0
    assert 80 <= load(plan, device, "a/b") <= 98
    always = plan_of(CONFIG % ", telemetry: {pattern: steady, gpu: 50, always: true}")
    assert load(always, device) == 50


def test_pods_that_share_a_device_add_up_to_all_of_it_at_most():
    """Those that say their load with theirs, the others with the entry's."""
    plan = plan_of(CONFIG % ", telemetry: {pattern: steady, gpu: 30}")
    device = ids(plan, GPU)[0]
    wishes = {"a/one": Range(20, 20), "a/two": Range(50, 50), "a/three": Range(90, 90)}
    assert load(plan, device, "a/one", wishes=wishes) == 20
    assert load(plan, device, "a/one", "a/two", wishes=wishes) == 70
    assert load(plan, device, "a/one", "a/other", wishes=wishes) == 50
    assert load(plan, device, "a/one", "a/two", "a/three", wishes=wishes) == 100
    assert 10 <= load(plan, device, "a/range", wishes={"a/range": Range(10, 20)}) <= 20


def test_a_load_counts_from_when_its_pods_came():
    """And goes on while they are the same."""
    plan = plan_of(CONFIG % ", telemetry: {pattern: ramp, period: 100s}")
    device = ids(plan, GPU)[0]
    sensors = Sensors()
    sensors.settle(situation(plan, {device: ["a/b"]}), 50.0)
    sensors.settle(situation(plan, {device: ["a/b"]}), 80.0)
    assert load_of(sensors, device, 90.0) == pytest.approx(40)
    sensors.settle(situation(plan, {device: ["a/c"]}), 90.0)
    assert load_of(sensors, device, 90.0) == 0


def test_counters_go_on_over_plans_and_begin_anew_with_the_device():
    """What happens to other devices does not matter; one that was away is a new one."""
    plan, other = plan_of(CONFIG % ""), plan_of(CONFIG.replace("count: 2", "count: 3") % "")
    device = ids(plan, GPU)[0]
    sensors = Sensors()

    def energy(plan, at):
        sensors.settle(situation(plan), at)
        return [each.whole.energy_mj for each in sensors.measured(at, {device})]

    idle = 55  # W
    assert [0] == energy(plan, 10.0)
    assert [10 * idle * 1000] == energy(other, 20.0)
    assert [20 * idle * 1000] == energy(plan, 30.0)
    assert [] == energy(plan_of(CONFIG.replace("name: a", "name: b") % ""), 40.0)
    assert [0] == energy(plan, 50.0)


def test_partitions_share_the_compute_of_their_device():
    """By their compute slices, of which seven are all; each has its own load."""
    plan = plan_of(CONFIG % ", telemetry: {pattern: steady, gpu: 70}")
    small = ids(plan, "nvidia.com/mig-1g.5gb")[0]
    sensors = Sensors()
    sensors.settle(situation(plan, {small: ["a/b"]}), 10.0)
    shown = [each for each in sensors.measured(20.0) if each.fixture.is_cut]
    assert [70] == [each.own.gpu_percent for each in shown if each.own.gpu_percent]
    assert [pytest.approx(10)] * len(shown) == [each.whole.gpu_percent for each in shown]


def test_nodes_and_seeds_differ_and_runs_do_not():
    """The same configuration on the same node shows the same."""
    config = CONFIG % ", telemetry: {always: true}"

    def loads(node):
        return [round(each.own.gpu_percent, 6) for each in measured(config, node=node)]

    assert loads("n1") == loads("n1")
    assert loads("n1") != loads("n2")
