"""Devices with malicious serial numbers are listed as Unhealthy and never reach a pod."""

from tests.kit.fakehost import FakeHost
from vdev.agent.status import status
from vdev.sim import manifest

STICK = "example.com/stick"
CONFIG = """
version: v1
flags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}
devices:
  - name: stick
    resource: example.com/stick
    usb: {vendor: "1050"}
    container:
      env: {SERIALS: "{attributes.serial}"}
      mounts: [{hostPath: "/srv/sticks/{attributes.serial}", containerPath: "/data/{index}"}]
  - {name: acme, resource: acme.dev/npu, virtual: {count: 1}}
"""


def plug(fake, port, serial):
    """Plug a stick into a port of bus 1."""
    fake.plug(
        f"pci0000:00/0000:00:14.0/usb1/1-{port}",
        bus="usb",
        idVendor="1050",
        idProduct="0407",
        serial=serial,
        node={"path": f"bus/usb/001/{port:03}", "number": f"189:{port}"},
    )


async def test_malicious_serial_numbers_reach_no_mount(kubelet, start_agent, shows, directory):
    """Other devices are allocated, and the status has the reasons."""
    fake = FakeHost(directory / "host")
    for port, serial in enumerate(("GOOD-1", "../../../etc", "A,B", "", "x\x1b]0;owned"), start=1):
        plug(fake, port, serial)
    agent = await start_agent(CONFIG, wait=False, host=fake.host)
    await shows(STICK, 5, 1)
    await shows("acme.dev/npu", 1, 1)
    pod = await kubelet.run_pod(manifest("one", {STICK: 1}))
    edits = pod.container().edits
    assert "GOOD-1" == edits.envs["SERIALS"]
    assert ["/srv/sticks/GOOD-1"] == [mount.host_path for mount in edits.mounts]
    text = "".join(path.read_text() for path in agent.cdi_dir.iterdir())
    assert "GOOD-1" in text
    assert not any(harm in text for harm in ("etc", "A,B", "owned", '/srv/sticks/"'))
    reasons = [device["reason"] for device in status(agent.agent)["resources"][0]["devices"]]
    assert 4 == sum(reason.startswith("not handed out: ") for reason in reasons)
    assert any("attributes.serial is '../../../etc'" in reason for reason in reasons)
    assert all(reason.isprintable() for reason in reasons)
    assert any(log.get("problem", "").count("is not handed out (and 3 more like it)") for log in agent.logs)
