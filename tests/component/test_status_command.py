"""`vdev status` and `vdev device`: problems come first, and shown names can be used in commands."""

import asyncio
import contextlib
import errno
import json
import os
import re
import sys

import pytest

from vdev import cli
from vdev.cli import common
from vdev.cli.status import lines as status_lines
from vdev.errors import HostError
from vdev.sim import manifest

CONFIG = """version: v1
flags: {migStrategy: mixed}
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 50}}
  - name: a100
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 3}
    partitions: {"0": [1g.5gb, 1g.5gb, 2g.10gb]}
"""


@pytest.fixture
async def vdev(start_agent, shows, directory, capsys):
    """Run a command against a plugin with listed devices. Returns its exit code and lines."""
    await start_agent(CONFIG, run_dir=directory / "run", fault_injection=True)
    await shows("acme.dev/npu", 50)

    async def run(*arguments):
        code = await asyncio.to_thread(cli.main, [*arguments, "--run-dir", str(directory / "run")])
        captured = capsys.readouterr()
        return code, (captured.out + captured.err).splitlines()

    return run


def rows(lines, resource):
    """The rows of a resource's table."""
    start = next(number for number, line in enumerate(lines) if line.startswith(f"{resource}:"))
    return [
        re.split(r"  +", line.strip())
        for line in lines[start + 2 : lines.index("", start) if "" in lines[start:] else None]
    ]


async def test_unhealthy_devices_come_first(vdev):
    """The resource comes first, and its Unhealthy device is the first row, although not all devices are shown."""
    _, well = await vdev("status")
    assert "4 resources, 55 devices: all healthy, 0 held by pods" in well
    assert 0 == (await vdev("device", "set", "npu/47", "--health", "Unhealthy", "--reason", "too hot"))[0]
    code, lines = await vdev("status")
    assert "4 resources, 55 devices: 1 unhealthy, 0 held by pods" in lines
    first = next(line for line in lines[lines.index("") :] if line)
    assert (0, "acme.dev/npu: 49/50 allocatable, registered") == (code, first)
    row = rows(lines, "acme.dev/npu")[0]
    assert ["npu-47", "npu/47", "Unhealthy", "too hot; injected by device:npu/47"] == [*row[:3], row[-1]]


async def test_failed_actions_are_shown(start_agent, kubelet, shows, directory, capsys):
    """One line has the place, the reason, and whether it is retried. Without failures there is no line."""
    fails = "[/bin/sh, -c, 'echo no {id}; test -e %s']"
    release = fails % (directory / "well")
    block = f"onAllocate: [{{command: {fails % '/none'}}}], onRelease: [{{command: {release}}}]"
    text = f"version: v1\ndevices: [{{name: npu, resource: acme.dev/npu, virtual: {{count: 2}}, {block}}}]"
    agent = await start_agent(text, run_dir=directory / "run")
    await shows("acme.dev/npu", 2)

    async def status():
        await asyncio.to_thread(cli.main, ["status", "--run-dir", str(directory / "run")])
        return capsys.readouterr().out.splitlines()

    async def until(text):
        async with asyncio.timeout(30):
            while True:
                shown = await status()
                if any(re.search(text, line) for line in shown):
                    return shown
                await kubelet.journal.next_change(at_most=0.05)

    assert not any("action" in line for line in await status())
    pod = await kubelet.run_pod(manifest("a", {"acme.dev/npu": 1}))
    (id_,) = pod.container().devices["acme.dev/npu"]
    shown = await until("onAllocate")
    start = next(number for number, line in enumerate(shown) if line.startswith("actions: "))
    assert "actions: 1 failed, 0 done; mend the commands and files that the configuration has for them" == shown[start]
    row = ["onAllocate", "acme.dev/npu", id_, "default/a", "AGO", f"sh exited with 1: no {id_}"]
    assert row == re.split(r"  +", re.sub(r"\d+ s ago", "AGO", shown[start + 2]).strip())
    await kubelet.delete_pod("a")
    await until(f"onRelease .* {id_} .*: no {id_}; it is tried again, and until then no pod starts with it$")
    (directory / "well").touch()
    while agent.agent.handovers.status()["releasesToDo"]:
        await kubelet.journal.next_change(at_most=0.05)
    await until(f"onRelease .* {id_} .*: no {id_}$")  # in the past


async def test_only_the_newest_failed_actions_are_shown(vdev):
    """The plugin itself keeps only the last ones, so JSON does not list all."""
    _, text = await vdev("status", "--output", "json")
    failure = {"occasion": "onAllocate", "resource": "a.b/c", "device": "c-0", "pod": "", "at": 0.0, "reason": "no"}
    actions = {"failed": 90, "done": 0, "failures": [failure] * 5, "releasesToDo": []}
    shown = list(status_lines(json.loads("\n".join(text)) | {"actions": actions}))
    assert 3 == sum("onAllocate" in line for line in shown)
    assert "  … and others; --output json lists the last 5 failures" in shown


async def test_devices_are_named_as_in_rules(vdev):
    """A whole device by entry and index, a partition also by its number. Commands accept these names.

    As in rules, a device includes its partitions.
    """
    _, lines = await vdev("status", "--output", "json")
    devices = [device for resource in json.loads("\n".join(lines))["resources"] for device in resource["devices"]]
    assert {("a100", "a100/0:2"), ("npu", "npu/49")} <= {(each["entry"], each["selector"]) for each in devices}
    _, lines = await vdev("status")
    assert ["a100/1", "a100/2"] == [row[1] for row in rows(lines, "nvidia.com/gpu")]
    shown = {row[1]: row[0] for row in rows(lines, "nvidia.com/mig-1g.5gb")}
    assert ["a100/0:0", "a100/0:1"] == sorted(shown)
    assert (0, ["added: device:a100/0:1"]) == await vdev("device", "set", "a100/0:1", "--health", "Unhealthy")
    assert (0, ["cleared: device:a100/0:1"]) == await vdev("device", "clear", "a100/0:1")
    await vdev("device", "set", "a100/0", "--health", "Unhealthy")
    _, lines = await vdev("status")
    assert ["Unhealthy"] * 2 == [row[3] for row in rows(lines, "nvidia.com/mig-1g.5gb")]
    assert ["Healthy"] * 2 == [row[2] for row in rows(lines, "nvidia.com/gpu")]


@pytest.mark.parametrize(
    ("seconds", "fine"), [("0.1", True), ("0", False), ("x", False), ("nan", False), ("1e9", False)]
)
def test_the_interval_of_watch_is_validated(seconds, fine, capsys, monkeypatch):
    """This happens before the agent is called."""

    async def ended(_frame, _every, **_):
        return None

    async def asked(*_):
        raise HostError("nobody answers")

    monkeypatch.setattr(common, "watch", ended)
    monkeypatch.setattr("vdev.agent.command_socket.ask", asked)
    assert (1 if fine else 2) == cli.main(["status", "--watch", seconds])
    assert fine is not ("--watch: expected seconds" in capsys.readouterr().err)


def frames(*made):
    """A function that returns these frames in turn, raises those that are exceptions, and is then cancelled."""
    left = iter(made)

    async def frame():
        match next(left, None):
            case None:
                raise asyncio.CancelledError
            case HostError() as failed:
                raise failed
            case found:
                return found

    return frame


async def test_watch_continues_after_an_error(capsys):
    """The plugin may restart."""
    with pytest.raises(asyncio.CancelledError):
        await common.watch(frames(["one"], HostError("nobody answers"), ["two"]), 0.0)
    assert "one\n\nvdev: nobody answers\n\ntwo\n\n" == capsys.readouterr().out


async def test_watch_with_json_writes_errors_to_stderr(capsys):
    """Stdout has only documents."""
    with pytest.raises(asyncio.CancelledError):
        await common.watch(frames(["{}"], HostError("nobody answers"), ["[]"]), 0.0, as_json=True)
    assert ("{}\n[]\n", "vdev: nobody answers\n") == capsys.readouterr()


def test_without_a_running_agent(tmp_path, capsys):
    """The error has the path of the socket."""
    assert 1 == cli.main(["status", "--run-dir", str(tmp_path)])
    said = f"no running vdev answers on {tmp_path}/vdev.sock: No such file or directory; start `vdev run`, or give its"
    assert said in capsys.readouterr().err


def test_an_agent_of_another_user(tmp_path, monkeypatch, capsys):
    """The error says which users may connect."""

    async def refused(*_arguments, **_options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(asyncio, "open_unix_connection", refused)
    assert 1 == cli.main(["status", "--run-dir", str(tmp_path)])
    said = f"{tmp_path}/vdev.sock: Permission denied; it answers root and the user of `vdev run` alone"
    assert said in capsys.readouterr().err


async def test_a_live_view_never_scrolls(monkeypatch, capsys):
    """Each view ends with the codes that clear the rest of the screen."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")

    async def frame():
        return ["first", "last"]

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await common.watch(frame, 60)
    assert capsys.readouterr().out.endswith("last\x1b[K\n\x1b[J\x1b[?7h")


async def test_only_devices_of_drivers_with_a_problem_are_listed(vdev):
    _, text = await vdev("status", "--output", "json")
    status = json.loads("\n".join(text))
    device = {"name": "npu-0", "health": "Healthy", "reason": "", "injected": "", "taints": []}
    driver = {"name": "npu.example.com", "state": "registered", "devices": 1, "unhealthy": 0, "slices": 1, "claims": []}
    for devices, heads in (([device], 0), ([device, device | {"name": "npu-1", "health": "Unhealthy"}], 1)):
        lines = list(status_lines(status | {"resources": [], "dra": [driver | {"deviceList": devices}]}))
        assert any(line.startswith("DRA driver npu.example.com: registered") for line in lines)
        assert heads == sum(line.split()[:2] == ["DEVICE", "HEALTH"] for line in lines)
        assert heads == sum("npu-1" in line for line in lines)
        assert not any("npu-0" in line for line in lines)
