"""Hot reload: edits are applied without a restart, and bad ones change nothing."""

import os
import signal
import threading

import pytest

from vdev import config
from vdev.sim import manifest

TWO = """
version: v1
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}
  - {name: other, resource: example.com/other, virtual: {count: 1}}
"""
THREE = TWO.replace("count: 2", "count: 3")
NPU, OTHER = "acme.dev/npu", "example.com/other"


async def test_an_edit_is_applied_live(kubelet, start_agent, shows):
    """The new list comes on the open stream. Other resources send nothing."""
    agent = await start_agent(TWO)
    lists = [each.fields["resource"] for each in kubelet.journal.of("listed")].count(OTHER)
    agent.config_file.write_text(THREE)
    await shows(NPU, 3, 3)
    assert {NPU: 1, OTHER: 1} == dict(kubelet.metrics.registrations)
    assert lists == [each.fields["resource"] for each in kubelet.journal.of("listed")].count(OTHER)


@pytest.fixture
def readings():
    """The files of each reading."""
    return []


@pytest.fixture
def load(readings):
    """A function that reads the files and records that."""

    def noted(files, **how):
        loaded = config.load(files, **how)
        readings.append(files)
        return loaded

    return noted


async def test_an_edit_during_the_first_reading_is_applied(start_agent, shows, config_dir, load, readings):
    """An edit between the reading and the first list is not missed."""

    def edited(files, **how):
        loaded = load(files, **how)
        if len(readings) == 1:
            (config_dir / "vdev.yaml").write_text(THREE)
        return loaded

    await start_agent(TWO, load=edited, wait=False)
    await shows(NPU, 3, 3)


async def test_an_edit_during_a_reading_is_applied(kubelet, start_agent, shows, load, readings):
    """An edit that is noticed after a reading of the file and before its end is not missed."""
    asked = threading.Event()

    def edited(files, **how):
        loaded = load(files, **how)
        if len(readings) == 2:
            agent.edit(THREE.replace("count: 3", "count: 4"))
            assert asked.wait(10)
        return loaded

    agent = await start_agent(TWO, load=edited)
    pending = agent.agent.pending

    def add(*, reload=False, **more):
        type(pending).add(pending, reload=reload, **more)
        if reload and len(readings) == 2:
            asked.set()

    pending.add = add
    agent.edit(THREE)
    await shows(NPU, 4, 4)


async def test_a_configmap_swap_is_applied_live(kubelet, start_agent, shows, directory):
    """The kubelet swaps the link `..data`, through which the file is a link."""
    mount = directory / "mount"

    def publish(name, text):
        (mount / name).mkdir(parents=True)
        (mount / name / "vdev.yaml").write_text(text)
        (mount / "..new").symlink_to(name)
        (mount / "..new").rename(mount / "..data")

    publish("..2026_1", TWO)
    file = mount / "vdev.yaml"
    file.symlink_to("..data/vdev.yaml")
    await start_agent(TWO, config_files=(file,))
    await shows(NPU, 2, 2)
    publish("..2026_2", THREE)
    await shows(NPU, 3, 3)
    publish("..2026_3", TWO)
    await shows(NPU, 2, 2)


@pytest.mark.parametrize(
    "put",
    [lambda at: at.symlink_to(at.with_suffix(".yaml").name), os.mkfifo, None],
    ids=["a link to itself", "a pipe", "nothing"],
)
async def test_a_path_that_is_not_a_file_changes_nothing(kubelet, start_agent, shows, put):
    """It is refused like a bad file, and the next good one is applied."""
    agent = await start_agent(TWO)
    if put is None:
        agent.config_file.unlink()
    else:
        put(fresh := agent.config_file.with_suffix(".new"))
        fresh.rename(agent.config_file)
    await kubelet.wait_until(lambda: not agent.agent.config.last_was_good, what="the refusal")
    agent.edit(THREE)
    await shows(NPU, 3, 3)


async def test_sighup_reads_again(kubelet, start_agent, load, readings):
    """SIGHUP reads unchanged files again, which registers nothing."""
    await start_agent(TWO, load=load)
    before = len(readings)
    os.kill(os.getpid(), signal.SIGHUP)
    await kubelet.wait_until(lambda: len(readings) > before, what="another reading")
    assert {NPU: 1, OTHER: 1} == dict(kubelet.metrics.registrations)


async def test_a_new_resource_registers_and_a_removed_one_drains(kubelet, start_agent, shows):
    """A removed resource ends with an empty list, so that its capacity is 0."""
    agent = await start_agent(TWO)
    agent.edit(TWO.replace("example.com/other", "example.com/new"))
    await shows("example.com/new", 1, 1)
    await shows(OTHER, 0, 0)
    await kubelet.wait_until(
        lambda: OTHER not in agent.agent.reconciler.advertised.resources, what="the end of the resource"
    )
    assert [] == kubelet.errors


async def test_a_resource_that_is_removed_while_its_stream_is_closed_drains(kubelet, start_agent, shows):
    """The kubelet keeps the ids of the last list, so the empty list is sent on its next stream."""
    agent = await start_agent(TWO, end_of_stream=1.0, retire_handover=2.0)
    service = agent.agent.lists.services[OTHER]
    service.servicer.close_streams()
    agent.edit(TWO.replace("example.com/other", "example.com/new"))
    await kubelet.wait_until(lambda: OTHER not in agent.agent.lists.services, what="the end of the resource")
    assert service.servicer.streams == 0, "the kubelet has opened a stream before the resource went"
    await shows(OTHER, 0, 0)
    await kubelet.wait_until(lambda: not kubelet.listed().get(OTHER), what="the empty list")
    assert [] == kubelet.errors


BAD_EDITS = [
    "",
    "version: v2\n",
    "devices: [",
    TWO.replace("count: 2", "cuont: 2"),
    TWO.replace("acme.dev/npu", "npu"),
    TWO.replace("example.com/other", "acme.dev/npu").replace("name: other", "name: acme"),
    "\x00",
    "a: &a [*a]",
    TWO + '"[key]": 1\n',
    TWO + "sharing: {timeSlicing: {resources: [{name: acme.dev/npu, replicas: 2, devices: [%s]}]}}\n" % ("9" * 5000),
]


async def test_a_bad_edit_changes_nothing(kubelet, start_agent, shows):
    """The last good configuration stays in force, the status has the problems, and the next good edit is applied."""
    agent = await start_agent(TWO)
    reload = agent.agent.config
    count = 2
    for bad in BAD_EDITS:
        agent.edit(bad)
        await kubelet.wait_until(lambda: not reload.last_was_good, what=f"the refusal of {bad[:80]!r}")
        assert (count, count) == (kubelet.node().capacity[NPU], kubelet.node().allocatable[NPU]), bad
        assert reload.problems, bad
        count = 5 - count
        agent.edit(TWO if count == 2 else THREE)
        await shows(NPU, count, count)
        assert reload.last_was_good
    assert {NPU: 1, OTHER: 1} == dict(kubelet.metrics.registrations)


async def test_container_edits_change_without_a_registration(kubelet, start_agent, shows):
    """The next allocation has them."""
    agent = await start_agent(TWO)
    agent.edit(TWO.replace("virtual: {count: 2}", 'virtual: {count: 2}, container: {env: {X: "1"}}'))
    await agent.serves(2, kubelet)
    pod = await kubelet.run_pod(manifest("a", {NPU: 1}))
    assert "1" == pod.container().edits.envs["X"]
    assert 1 == kubelet.metrics.registrations[NPU]


async def test_the_last_of_many_edits_is_applied(kubelet, start_agent, shows):
    """Edits in a burst may be coalesced."""
    agent = await start_agent(TWO)
    for count in range(3, 40):
        agent.edit(TWO.replace("count: 2", f"count: {count}"))
    await shows(NPU, 39, 39)
    assert [] == kubelet.errors
