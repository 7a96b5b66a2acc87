"""A device node that matches two entries or has two names: its entry before and after edits and plugs."""

import pytest

from tests.kit.fakehost import FakeHost
from vdev.sim import manifest

ANY, STICK = "example.com/serial", "example.com/zigbee"
GENERIC = f"  - {{name: serial, resource: {ANY}, glob: /dev/ttyUSB*}}\n"
BY_ID = f"  - {{name: zigbee, resource: {STICK}, glob: /dev/serial/by-id/*}}\n"


def config(*entries):
    return "version: v1\ndevices:\n" + "".join(entries)


@pytest.fixture
def host(directory):
    """Two serial adapters, one of which also has a name by id."""
    fake = FakeHost(directory / "host")
    fake.node("ttyUSB0", "188:0")
    fake.node("ttyUSB1", "188:1")
    fake.link("/dev/serial/by-id/zigbee", "../../ttyUSB1")
    return fake


async def test_a_held_node_changes_its_entry_when_its_pod_is_gone(kubelet, start_agent, shows, host):
    """After an edit gives the node to another entry, it stays listed for the pod, and is Unhealthy in the new one."""
    agent = await start_agent(config(GENERIC), host=host.host)
    await kubelet.run_pod(manifest("a", {ANY: 2}))
    agent.edit(config(BY_ID, GENERIC))
    await shows(STICK, 1, 0)
    await shows(ANY, 2, 1)
    held = "overlaps serial-ttyUSB1, which pod default/a still holds"
    await agent.calls_unhealthy(kubelet, STICK, "zigbee-zigbee", held)
    assert "serial-ttyUSB1 (/dev/ttyUSB1) is not advertised" in agent.agent.reconciler.problems[-1].message
    await kubelet.delete_pod("a")
    await shows(STICK, 1, 1)
    await shows(ANY, 1, 1)
    assert [] == kubelet.errors


async def test_the_first_entry_in_the_file_gets_a_node(kubelet, start_agent, shows, host):
    """The order of plugs does not matter."""
    await start_agent(config(BY_ID, GENERIC), host=host.host)
    for _ in range(2):
        await shows(STICK, 1, 1)
        await shows(ANY, 1, 1)
        host.remove("/dev/serial/by-id/zigbee")
        await shows(ANY, 2, 2)  # without its name by id, it matches the second entry alone
        host.link("/dev/serial/by-id/zigbee", "../../ttyUSB1")
    await shows(STICK, 1, 1)
    await shows(ANY, 1, 1)
    assert [] == kubelet.errors


async def test_only_the_entry_with_the_node_probes_it(kubelet, start_agent, shows, host, directory):
    """A probe may have side effects."""
    probed = directory / "probed"
    health = f"health: {{probe: command, command: [/bin/sh, -c, 'echo $0 >> {probed}', '{{id}}'], interval: 100ms}}"
    entries = [each.rstrip("}\n") + f", {health}}}\n" for each in (BY_ID, GENERIC)]
    await start_agent(config(*entries), host=host.host)
    await kubelet.wait_until(
        lambda: probed.exists() and probed.read_text().count("serial-ttyUSB0") > 2, what="some probes"
    )
    assert {"serial-ttyUSB0", "zigbee-zigbee"} == set(probed.read_text().split())


async def test_an_unplug_counts_for_one_entry(kubelet, start_agent, shows, host):
    """One loss is counted for one lost adapter."""
    agent = await start_agent(config(BY_ID, GENERIC), host=host.host)
    host.remove("/dev/ttyUSB1")
    await shows(STICK, 0)
    flaps = {
        name: agent.agent.metrics.registry.get_sample_value("vdev_device_flaps_total", {"resource": name})
        for name in (STICK, ANY)
    }
    assert {STICK: 1, ANY: None} == flaps


ALIASES = f"  - {{name: serial, resource: {ANY}, glob: '/dev/tty*'}}\n"


async def test_names_of_one_node_in_one_entry_are_one_device(kubelet, start_agent, shows, directory):
    """Nodes with the same numbers are one device, and there is one warning about the other names."""
    host = FakeHost(directory / "host")
    for name in ("tty0", "tty1", "tty2"):
        host.node(name, "188:0")
    host.node("tty3", "188:1")
    agent = await start_agent(config(ALIASES), host=host.host)
    await shows(ANY, 2, 2)
    assert {"serial-tty0", "serial-tty3"} == set(agent.agent.reconciler.advertised.resources[ANY].by_id)
    (problem,) = agent.agent.reconciler.problems
    assert "serial-tty1 (/dev/tty1) is not advertised (and 1 more like it)" in problem.message
    assert "it is the same device as serial-tty0 (/dev/tty0)" in problem.message
    host.remove("/dev/tty0")
    await shows(ANY, 2, 2)
    await kubelet.wait_until(
        lambda: {"serial-tty1", "serial-tty3"} == set(agent.agent.reconciler.advertised.resources[ANY].by_id),
        what="the next name of the node",
    )
    assert [] == kubelet.errors


async def test_a_shared_entry_lists_every_name_of_a_node(kubelet, start_agent, shows, directory):
    """With `shared: true`, several pods may use the node at the same time."""
    host = FakeHost(directory / "host")
    host.node("tty0", "188:0")
    host.node("tty1", "188:0")
    await start_agent(config(ALIASES.replace("}", ", shared: true}")), host=host.host)
    await shows(ANY, 2, 2)
    assert [] == kubelet.errors
