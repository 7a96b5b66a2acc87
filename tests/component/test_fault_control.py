"""Fault injection by commands over the control socket, and by files."""

import asyncio
import json

import pytest

from vdev import cli
from vdev.agent import command_socket
from vdev.agent.status import status
from vdev.aio.clock import ManualClock
from vdev.errors import UsageError

NPU = "acme.dev/npu"
DEVICES = """version: v1
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 4}}
faults:
  rules:
    - {name: planned, devices: [acme/3], manual: true, for: 30s, health: Unhealthy}
"""


@pytest.fixture
def clock():
    return ManualClock(50.0)


@pytest.fixture
def run_dir(directory):
    return directory / "run"


@pytest.fixture
async def agent(start_agent, clock, run_dir, directory):
    """A plugin that allows fault injection."""
    (directory / "faults").mkdir()
    return await start_agent(
        DEVICES, clock=clock, run_dir=run_dir, fault_injection=True, fault_dir=directory / "faults"
    )


@pytest.fixture
async def vdev(run_dir, capsys):
    """Run a command against the plugin. Returns its exit code and output."""

    async def run(*arguments):
        code = await asyncio.to_thread(cli.main, [*arguments, "--run-dir", str(run_dir)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


async def test_device_set_and_clear(agent, vdev, shows):
    """A device is set Unhealthy with a reason, and cleared."""
    assert (0, "added: device:acme-0\n") == await vdev(
        "device", "set", "acme-0", "--health", "Unhealthy", "--reason", "XID 79"
    )
    await shows(NPU, 4, 3)
    (sick,) = [d for d in status(agent.agent)["resources"][0]["devices"] if d["health"] == "Unhealthy"]
    assert ("acme-0", "XID 79", "device:acme-0") == (sick["id"], sick["reason"], sick["injected"])
    assert 0 == (await vdev("device", "clear", "acme-0"))[0]
    await shows(NPU, 4, 4)
    for several in ("acme", "acme/0-1"):
        code, said = await vdev("device", "set", several, "--health", "Unhealthy")
        assert 2 == code
        assert "devices; give the id of one, or <entry>/<index>" in said


async def test_injections_are_counted_by_resource(start_agent, clock, vdev, run_dir):
    """A fault in two resources counts once for each, and the list has the sum."""
    more = "  - {name: more, resource: acme.dev/more, virtual: {}}\nfaults:\n"
    text = DEVICES.replace("faults:\n", more).replace("[acme/3], manual: true, for: 30s", "[acme, more]")
    await start_agent(text, clock=clock, run_dir=run_dir)
    listed = json.loads((await vdev("fault", "list", "--output", "json"))[1])
    assert [{"acme.dev/more": 1, NPU: 1}] == [each["injectedIn"] for each in listed["rules"]]
    table = [line.split() for line in (await vdev("fault", "list"))[1].splitlines()]
    assert [["NAME", "STATE", "DEVICES", "INJECTED"], ["planned", "active", "5", "2"]] == [row[:4] for row in table]


async def test_add_list_clear(agent, vdev, shows):
    """A rule is added, listed as active, and cleared, alone or with all others."""
    code, _ = await vdev("fault", "add", "{name: two, devices: [acme/0-1], health: Unhealthy}")
    assert 0 == code
    await shows(NPU, 4, 2)
    _, listed = await vdev("fault", "list", "--output", "json")
    rules = {each["name"]: each for each in json.loads(listed)["rules"]}
    assert ("active", "live") == (rules["two"]["state"], rules["two"]["source"])
    assert "waiting for its trigger" == rules["planned"]["state"]
    assert "two" in (await vdev("status"))[1]
    assert "cleared: two" in (await vdev("fault", "clear", "two"))[1]
    await shows(NPU, 4, 4)
    await vdev("fault", "add", "{name: two, devices: [acme/0-1], health: Unhealthy}")
    await vdev("fault", "trigger", "planned")
    await shows(NPU, 4, 1)
    await vdev("fault", "clear", "--all")
    await shows(NPU, 4, 4)


async def test_the_status_has_the_hint_of_a_refused_edit(agent, kubelet, vdev):
    """It is the same hint as in `vdev validate`."""
    agent.edit(DEVICES.replace("count:", "cuont:"))
    await kubelet.wait_until(lambda: not agent.agent.config.last_was_good, what="the edit to be refused")
    _, shown = await vdev("status")
    assert "unknown key 'cuont'; did you mean 'count'? allowed: " in shown


async def test_trigger(agent, vdev, shows, clock):
    """A manual rule begins each time that it is triggered."""
    for _ in range(2):
        assert 0 == (await vdev("fault", "trigger", "planned"))[0]
        await shows(NPU, 4, 3)
        clock.advance(30)
        await shows(NPU, 4, 4)


REFUSALS = [
    (("device", "set", "nope-1", "--health", "Unhealthy"), "unknown device 'nope-1'; known entries: acme"),
    (("device", "clear", "acme-0"), "nothing is set on device acme-0"),
    (("device", "set", "acme-0", "--health", "Unhealthy", "--for", "soon"), "expected a duration"),
    (("fault", "clear", "nope"), "there is no fault rule 'nope'; the rules are: planned"),
    (("fault", "trigger", "nope"), "there is no fault rule 'nope'"),
    (("fault", "clear"), "give the name of a fault, or --all"),
    (("fault", "add", "{name: x}"), "has no effect"),
    (("fault", "add", ""), "<live>: is empty; expected a rule, such as {name: x,"),
    (("fault", "add", "[{name: x}]"), "got a list; write a rule, such as {name: x,"),
    (("fault", "add", "--file", "/no/rules.yaml"), "/no/rules.yaml: cannot be read: No such file or directory\n"),
    (("fault", "add", "--file", "/bin/true"), "is not UTF-8; save it as UTF-8"),
    (("fault", "add", "{name: x, devices: [nope/1], health: Unhealthy}"), "<live>:1:21"),
    (("fault", "add", "{name: x, devices: [acme], drop: true}"), "allowHarmful"),
    (("fault", "add", "{name: planned, devices: [acme], health: Unhealthy}"), "exists already, from configuration"),
]


async def test_refusals(agent, vdev, shows):
    """A wrong request is refused with exit code 2, and changes nothing."""
    for arguments, what in REFUSALS:
        code, text = await vdev(*arguments)
        assert (2, True) == (code, what in text), (arguments, text)
    await shows(NPU, 4, 4)


async def test_the_configuration_takes_over_a_live_rule(agent, vdev, shows, kubelet):
    """A rule of the configuration replaces a live rule of its name, and can be cleared."""
    rule = "{{name: {}, devices: [acme/{}], health: Unhealthy}}"
    await vdev("fault", "add", rule.format("mine", 0))
    await vdev("fault", "add", rule.format("taken", 1))
    await shows(NPU, 4, 2)
    agent.edit(DEVICES + "    - " + rule.format("taken", "1-2") + "\n")
    await shows(NPU, 4, 1)
    assert 0 == (await vdev("fault", "clear", "mine"))[0]
    await shows(NPU, 4, 2)
    assert 0 == (await vdev("fault", "clear", "taken"))[0]
    await shows(NPU, 4, 4)
    agent.edit(DEVICES)
    await agent.serves(3, kubelet)
    await vdev("fault", "add", rule.format("other", 3))
    await shows(NPU, 4, 3)


async def test_permission(start_agent, run_dir):
    """Without --enable-fault-injection, faults can be listed and not added."""
    await start_agent(DEVICES, run_dir=run_dir)
    assert False is (await command_socket.ask(run_dir, {"do": "fault-list"}))["enabled"]
    for ask in ({"do": "fault-add", "rules": "{}"}, {"do": "fault-trigger", "name": "planned"}, {"do": "device-set"}):
        with pytest.raises(UsageError, match="--enable-fault-injection"):
            await command_socket.ask(run_dir, ask)


async def test_socket_is_private(agent, run_dir):
    """Only the owner may use the socket."""
    assert 0o600 == (run_dir / command_socket.SOCKET).stat().st_mode & 0o777


async def test_rules_from_files(agent, shows, directory, kubelet):
    """The rules of a file are active while it exists. A file with errors is reported and changes nothing."""
    file = directory / "faults" / "drill.yaml"
    file.write_text("{name: filed, devices: [acme/0], health: Unhealthy}")
    await shows(NPU, 4, 3)
    file.write_text("{name: filed, devices: [acme/9], health: Unhealthy}")
    await kubelet.wait_until(lambda: "no device 9" in str(status(agent.agent)["problems"]))
    await shows(NPU, 4, 3)
    file.unlink()
    await shows(NPU, 4, 4)


async def test_a_fault_file_that_cannot_be_read(agent, shows, directory, kubelet):
    """It is a problem, and the rules of other files are active."""
    (directory / "faults" / "odd.yaml").symlink_to("n" * 300)
    (directory / "faults" / "drill.yaml").write_text("{name: filed, devices: [acme/0], health: Unhealthy}")
    await shows(NPU, 4, 3)
    await kubelet.wait_until(lambda: "odd.yaml" in str(status(agent.agent)["problems"]))
