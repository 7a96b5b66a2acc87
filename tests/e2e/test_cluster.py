"""Tests on a real node: the scenarios of the embedded kubelet, and behavior that only a real one has."""

import re

import pytest

from tests.e2e.cluster import KubectlError
from tests.kit.scenarios import dra_scenarios, scenarios
from vdev.sim import manifest
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario import load

NPU = "acme.dev/npu"
PATIENCE = 180.0  # seconds for each expectation

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def config(count=2, *, extra="", tail=""):
    """A configuration of NPUs, with additions to the entry and to the file."""
    return f"""\
version: v1
devices:
  - name: npu
    resource: {NPU}
    virtual: {{count: {count}, attributes: {{model: Acme X1}}}}
{extra}{tail}"""


def shows(cluster, run, resource, capacity, allocatable=None):
    """Wait until the node shows these numbers."""
    wanted = (capacity, capacity if allocatable is None else allocatable)

    async def condition():
        node = await cluster.node()
        return wanted == (node.capacity.get(resource, 0), node.allocatable.get(resource, 0))

    run(cluster.until(condition, f"{resource}: capacity and allocatable {wanted}"))


@pytest.mark.parametrize("path", [*scenarios(), *dra_scenarios()])
def test_scenarios(cluster, run, path):
    """A real kubelet behaves as the embedded one."""
    scenario = load(path)
    if why := cluster.unplayable(scenario):
        pytest.skip(why)
    run(play(cluster.playable(scenario), cluster, patience=PATIENCE))


def test_a_pod_sees_exactly_its_devices(cluster, run):
    """The container gets the variables, device nodes and mounts of its devices only."""
    run(cluster.edit_configuration(config(extra="""\
    container:
      env: {ACME_MODEL: "{attributes.model}", ACME_INDEX: "{index}"}
      deviceNodes: [{hostPath: /dev/null, containerPath: "/dev/acme{index}", permissions: rw}]
      mounts: [{hostPath: /etc/hostname, containerPath: /opt/acme/hostname, readOnly: true}]
""")))  # fmt: skip
    shows(cluster, run, NPU, 2)
    run(cluster.create_pod(manifest("one", {NPU: 1})))
    lines = run(cluster.inside("one", "env | grep ACME | sort; ls /dev | grep acme; ls /opt/acme")).split()
    (index,) = [line.partition("=")[2] for line in lines if line.startswith("ACME_INDEX=")]
    assert f"ACME_DEV_NPU_VISIBLE_DEVICES=npu-{index}" in lines
    assert [f"acme{index}"] == [line for line in lines if line.startswith("acme")]
    assert "hostname" == lines[-1]
    assert "1:3" == run(cluster.inside("one", f"stat -c %t:%T /dev/acme{index}")).strip()
    with pytest.raises(KubectlError, match=r"(?i)read-only"):
        run(cluster.inside("one", "echo x > /opt/acme/hostname"))


def test_cdi_edits_reach_the_container(cluster, run):
    """With `cdi-cri` alone, the runtime creates nodes and mounts from the specification on the host."""
    run(cluster.edit_configuration(config(extra="""\
    container:
      deviceNodes: [{hostPath: /dev/null, containerPath: "/dev/acme{index}"}]
      mounts:
        - {hostPath: /etc/hostname, containerPath: /opt/acme/hostname, readOnly: true}
        - {hostPath: /dev/null, containerPath: /run/line}
""", tail="flags: {plugin: {deviceListStrategy: cdi-cri}}\n")))  # fmt: skip
    shows(cluster, run, NPU, 2)
    run(cluster.create_pod(manifest("one", {NPU: 1})))
    assert re.fullmatch(r"acme[01]\nhostname\n", run(cluster.inside("one", "ls /dev | grep acme; ls /opt/acme")))
    assert "" == run(cluster.inside("one", "env | grep VISIBLE_DEVICES || true"))
    run(cluster.inside("one", "echo x > /run/line"))  # a mounted device, such as a serial line, can be opened


def test_sharing(cluster, run):
    """Several pods get replicas of one device, and all see the device itself."""
    tail = f"sharing: {{timeSlicing: {{resources: [{{name: {NPU}, replicas: 4}}]}}}}\n"
    run(cluster.edit_configuration(config(1, tail=tail)))
    shows(cluster, run, NPU, 4)
    for name in ("a", "b"):
        run(cluster.create_pod(manifest(name, {NPU: 1})))
        assert "npu-0" == run(cluster.inside(name, "echo $ACME_DEV_NPU_VISIBLE_DEVICES")).strip()


def test_mig_mixed(cluster, run):
    """Partitions are their own resources. A pod gets one by its UUID."""
    run(cluster.edit_configuration("""\
version: v1
flags: {migStrategy: mixed}
devices:
  - name: a100
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 2}
    partitions: {"0": [1g.5gb, 1g.5gb, 3g.20gb]}
"""))  # fmt: skip
    shows(cluster, run, "nvidia.com/gpu", 1)
    shows(cluster, run, "nvidia.com/mig-1g.5gb", 2)
    shows(cluster, run, "nvidia.com/mig-3g.20gb", 1)
    run(cluster.create_pod(manifest("one", {"nvidia.com/mig-1g.5gb": 1})))
    assert re.fullmatch(r"MIG-[0-9a-f-]{36}", run(cluster.inside("one", "echo $NVIDIA_VISIBLE_DEVICES")).strip())


def test_a_bad_edit_keeps_the_last_good(cluster, run):
    """A bad file changes nothing on the node, and the status has its errors."""
    run(cluster.edit_configuration(config(2)))
    shows(cluster, run, NPU, 2)
    run(cluster.edit_configuration(config(2).replace("count", "cuont")))

    async def refused():
        status = await cluster.agent_status()
        return status is not None and not status["config"]["lastReloadSuccessful"]

    run(cluster.until(refused, "the refusal"))
    assert "cuont" in str(run(cluster.agent_status())["problems"])
    shows(cluster, run, NPU, 2)


def test_a_kubelet_restart(cluster, run):
    """After a restart of the kubelet, the devices are back and pods keep theirs."""
    if "kubelet" not in cluster.capabilities:
        pytest.skip("no --kubelet-restart-command")
    run(cluster.edit_configuration(config(2)))
    shows(cluster, run, NPU, 2)
    run(cluster.create_pod(manifest("one", {NPU: 1})))
    mine = run(cluster.inside("one", "echo $ACME_DEV_NPU_VISIBLE_DEVICES"))
    run(cluster.restart_kubelet())
    shows(cluster, run, NPU, 2)
    run(cluster.create_pod(manifest("two", {NPU: 1})))
    assert mine != run(cluster.inside("two", "echo $ACME_DEV_NPU_VISIBLE_DEVICES"))
    assert 0 == run(cluster.pod("one")).container().restarts


@pytest.mark.parametrize("how", ["deleted", "rolled"])
def test_a_pod_keeps_its_device_when_the_agent_is_replaced(cluster, run, how):
    """The agent's pod is deleted or updated. A pod goes on, and no other pod gets its device."""
    run(cluster.edit_configuration(config(2)))
    shows(cluster, run, NPU, 2)
    run(cluster.create_pod(manifest("one", {NPU: 1})))
    mine, agent = run(cluster.inside("one", "echo $ACME_DEV_NPU_VISIBLE_DEVICES")), run(cluster.agent_pod())
    run(cluster.restart_plugin() if how == "deleted" else cluster.roll_plugin())
    assert agent != run(cluster.agent_pod())
    shows(cluster, run, NPU, 2)
    run(cluster.create_pod(manifest("two", {NPU: 1})))
    assert mine != run(cluster.inside("two", "echo $ACME_DEV_NPU_VISIBLE_DEVICES"))
    assert 0 == run(cluster.pod("one")).container().restarts


def test_removal_while_held(cluster, run):
    """A held device that leaves the file stays listed until the pod is gone."""
    run(cluster.edit_configuration(config(2)))
    shows(cluster, run, NPU, 2)
    run(cluster.create_pod(manifest("both", {NPU: 2})))
    run(cluster.edit_configuration(config(1)))
    shows(cluster, run, NPU, 2, 1)
    run(cluster.delete_pod("both"))
    shows(cluster, run, NPU, 1)
