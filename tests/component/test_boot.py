"""A service manager starts the plugin before the kubelet, so pods keep their devices after a reboot."""

import json

import pytest

from tests.kit.fakehost import FakeHost
from tests.kit.process import Process
from tests.kit.service_manager import Listener
from vdev.agent import status
from vdev.agent.service_manager import ServiceManager
from vdev.hostfs.root import boot_id
from vdev.sim import Phase, manifest

NPU, PORT, MODEM = "acme.dev/npu", "example.com/port", "example.com/modem"
CONFIG = f"""
version: v1
devices:
  - {{name: npu, resource: {NPU}, virtual: {{count: 1}}}}
  - {{name: port, resource: {PORT}, glob: /dev/ttyS*}}
  - {{name: modem, resource: {MODEM}, glob: /dev/ttyUSB*}}
"""
STICK = "example.com/stick"
STICKS = f"""
flags: {{plugin: {{deviceListStrategy: [cdi-cri]}}}}
devices: [{{name: stick, resource: {STICK}, glob: /dev/serial/by-id/*}}]
"""
PODS = {"trainer": NPU, "console": PORT, "gateway": MODEM}


@pytest.fixture
async def listener(directory):
    """The service manager's socket."""
    async with Listener(directory).listening() as listening:
        yield listening


@pytest.fixture
def host(directory):
    """A host with a built-in port and a plugged-in modem."""
    fake = FakeHost(directory / "host")
    fake.node("ttyS0", "4:64")
    fake.node("ttyUSB0", "188:0")
    return fake


@pytest.fixture
def start(start_agent, listener, host):
    """Start the plugin as a service."""

    def starting(text=CONFIG, *, wait=False, **options):
        manager = ServiceManager(listener.address)
        return start_agent(text, wait=wait, host=host.host, service_manager=manager, **options)

    return starting


@pytest.fixture
async def down(kubelet, start, listener, host, shows):
    """A node that went down while three pods held its devices. Returns the devices of each container."""
    agent = await start(wait=True)
    for name, resource in PODS.items():
        await shows(resource, 1, 1)
        await kubelet.run_pod(manifest(name, {resource: 1}))
    had = {name: kubelet.pod(name).container().devices for name in PODS}
    await listener.ready()
    await kubelet.power_off()
    await agent.stop()
    for socket in kubelet.device_plugin_dir.glob("vdev-*.sock"):
        socket.unlink()
    host.remove("/dev/ttyUSB0")
    listener.messages.clear()
    return had


async def admitted(kubelet, *resources):
    """Start the kubelet, and readmit its pods once these resources are listed. A serving plugin is that fast."""
    await kubelet.start(readmit=False)
    await kubelet.wait_until(lambda: kubelet.listed().keys() >= set(resources), what=f"the lists of {resources}")
    await kubelet.readmit()


async def test_the_kubelet_starts_when_all_devices_are_back(kubelet, start, listener, host, down):
    """The plugin waits for a late modem, and all pods get the devices that they had."""
    agent = await start(boot_wait=1000.0)
    await listener.until(lambda: "not there: modem-ttyUSB0" in listener.status, "what is missing")
    assert "READY=1" not in listener.messages
    await listener.until(lambda: any(each.startswith("EXTEND") for each in listener.messages), "that it takes time")
    (more,) = [each for each in listener.messages if each.startswith("EXTEND_TIMEOUT_USEC=")]
    assert 1000e6 < int(more.partition("=")[2]) <= 1015e6
    host.node("ttyUSB0", "188:0")
    await listener.ready()
    await admitted(kubelet, NPU, PORT, MODEM)
    assert dict.fromkeys(PODS, Phase.RUNNING) == {name: kubelet.pod(name).phase for name in PODS}
    assert down == {name: kubelet.pod(name).container().devices for name in PODS}
    assert "the kubelet may start now" in [each["event"] for each in agent.logs]
    assert [] == kubelet.errors


async def test_the_wait_ends_after_boot_wait(kubelet, start, listener, down):
    """The log and the status name the missing device, and only its pod fails."""
    agent = await start(boot_wait=0.3)
    await listener.ready()
    (said,) = [each for each in agent.logs if each["event"] == "devices that were there before are missing"]
    assert ["modem-ttyUSB0"] == said["devices"]
    assert "not there: modem-ttyUSB0" in listener.status
    await admitted(kubelet, NPU, PORT, MODEM)
    phases = {name: kubelet.pod(name).phase for name in PODS}
    assert {"trainer": Phase.RUNNING, "console": Phase.RUNNING, "gateway": Phase.FAILED} == phases
    assert "UnexpectedAdmissionError" == kubelet.pod("gateway").reason


async def test_the_start_of_a_kubelet_ends_the_wait(kubelet, start, listener, down):
    """It may have been started by hand, or its unit may lack the ordering."""
    await start(boot_wait=1000.0)
    await listener.until(lambda: "not there: modem-ttyUSB0" in listener.status, "what is missing")
    await kubelet.start()
    await listener.ready()


async def test_no_wait_beside_a_running_kubelet(kubelet, start, listener, host, shows):
    """A restart of the service alone is not a boot."""
    agent = await start(wait=True)
    await shows(MODEM, 1, 1)
    await kubelet.run_pod(manifest("gateway", {MODEM: 1}))
    await agent.stop()
    host.remove("/dev/ttyUSB0")
    listener.messages.clear()
    await start(boot_wait=1000.0)
    await listener.ready()


async def test_device_numbers_that_change_owner_over_a_boot(kubelet, start_agent, shows, directory):
    """One of two sticks is gone, and the other one now has its numbers. The pod of the other one keeps its stick."""
    host = FakeHost(directory / "sticks")
    for number, name in enumerate("ab"):
        host.node(f"ttyUSB{number}", f"188:{number}")
        host.link(f"/dev/serial/by-id/{name}", f"../../ttyUSB{number}")
    agent = await start_agent(STICKS, host=host.host, boot_id="one")
    await shows(STICK, 2, 2)
    for name in ("one", "other"):
        await kubelet.run_pod(manifest(name, {STICK: 1}))
    pods = {kubelet.pod(name).container().devices[STICK][0]: name for name in ("one", "other")}
    await kubelet.power_off()
    await agent.stop()
    for path in ("/dev/ttyUSB0", "/dev/ttyUSB1", "/dev/serial/by-id/a", "/dev/serial/by-id/b"):
        host.remove(path)
    host.node("ttyUSB0", "188:0")
    host.link("/dev/serial/by-id/b", "../../ttyUSB0")
    await start_agent(STICKS, wait=False, host=host.host, boot_id="two")
    await kubelet.wait_until(lambda: [*kubelet.device_plugin_dir.glob("vdev-*.sock")], what="the plugin's sockets")
    await admitted(kubelet, STICK)
    await shows(STICK, 2, 1)
    phases = {kubelet.pod(name).name: kubelet.pod(name).phase for name in pods.values()}
    assert {pods["stick-a"]: Phase.FAILED, pods["stick-b"]: Phase.RUNNING} == phases
    (file,) = agent.cdi_dir.iterdir()
    nodes = {each["name"]: each["containerEdits"] for each in json.loads(file.read_text())["devices"]}
    assert "/dev/ttyUSB0" == nodes["stick-b"]["deviceNodes"][0]["hostPath"]


async def test_a_service_manager_that_does_not_listen(kubelet, start, listener, shows, monkeypatch):
    """The plugin serves, with a problem in the status."""
    monkeypatch.setattr(listener, "address", "/nobody")
    agent = await start(wait=True)
    await shows(NPU, 1, 1)
    said = lambda: str(status.status(agent.agent)["problems"])
    await kubelet.wait_until(lambda: "no message to the socket /nobody: No such file" in said(), what="the problem")


class Service(Process):
    """`vdev run` as a service manager starts it."""

    def __init__(self, listener, *arguments, **options):
        super().__init__(*arguments, **options)
        self._command = ("env", f"NOTIFY_SOCKET={listener.address}", "WATCHDOG_USEC=300000", *self._command)


@pytest.mark.usefixtures("prepared_python")
async def test_messages_to_the_service_manager(kubelet, directory, listener):
    """READY, WATCHDOG, STATUS and STOPPING."""
    text = f"devices: [{{name: npu, resource: {NPU}, virtual: {{count: 1}}}}]\n"
    async with Service(listener, directory, kubelet, text) as service:
        await listener.ready()
        await listener.until(lambda: listener.messages.count("WATCHDOG=1") > 2, "signs of life")
        (record,) = (directory / "state").glob("state-*")
        assert boot_id() in record.read_text()
        await listener.until(lambda: "1 of 1 devices are Healthy, in 1 resources" == listener.status, "how it is")
        service.edit(text.replace("count: 1", "count: 2"))
        await listener.until(lambda: "2 of 2 devices are Healthy, in 1 resources" == listener.status, "the edit")
        assert "STOPPING=1" not in listener.messages
    assert "STOPPING=1" in listener.messages
