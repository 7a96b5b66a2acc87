"""The last good configuration is stored: a node that starts with bad files keeps its devices."""

import asyncio
import functools
import hashlib
import json
from pathlib import Path

import pytest

from tests.kit import forkserver
from tests.kit.fakehost import FakeHost
from tests.kit.process import Process, ask, ready
from vdev.agent import status
from vdev.errors import ConfigError
from vdev.sim import manifest

NPU = "acme.dev/npu"
GOOD = "version: v1\ndevices:\n  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}\n"
MORE = GOOD.replace("count: 2", "count: 3")
SYNTAX = GOOD + "  - {name: [\n"
SEMANTIC = GOOD.replace("virtual:", "virtuell:")
NO_DEVICE = GOOD + "  - {name: wrong, resource: acme.dev/wrong, glob: /etc/passwd}\n"
LENIENT = "flags: {failOnInitError: false}\n"
PORT = "devices:\n  - {name: uart, resource: acme.dev/uart, glob: /dev/ttyUSB0}\n"
UART = "acme.dev/uart"

BAD = {
    "no YAML": (SYNTAX, "is not YAML"),
    "refused by this node": (NO_DEVICE, "/etc/passwd is not a device node"),
}


@pytest.fixture
def kept(directory):
    """Find the file with the stored configuration."""

    def find() -> Path:
        (file,) = (directory / "state").glob("state-*.json")
        return file

    return find


@pytest.fixture
def leave(start_agent, kubelet, directory):
    """Run a plugin with a good configuration, and stop it."""

    async def run(text=GOOD, **options):
        agent = await start_agent(text, **options)
        await kubelet.wait_until(lambda: [*(directory / "state").glob("state-*")], what="the configuration to be kept")
        assert 0 == await agent.stop()
        return agent

    return run


def refused(agent):
    """The reason why the files are refused since the start, by the status; empty if they are in force."""
    shown = status.status(agent.agent)
    if not shown["config"]["keptAt"]:
        return ""
    assert not shown["config"]["lastReloadSuccessful"]
    assert not shown["ready"]
    assert 0 == agent.agent.metrics.registry.get_sample_value("vdev_config_last_reload_successful")
    return shown["notReady"][0]


async def bad_start(start_agent, kubelet, text, **options):
    """Start with a bad file, and wait for the first list."""
    agent = await start_agent(text, wait=False, **options)
    await kubelet.wait_until(lambda: agent.task.done() or agent.agent.reconciler.published, what="the first list")
    if agent.task.done():
        await agent.task
    return agent


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
async def test_a_start_with_a_bad_file_keeps_all_devices(start_agent, kubelet, shows, text, words):
    """Held devices stay with their pod, other pods get the rest, and status, log and problems have the reason.

    A good edit is applied at once, and then the agent is ready.
    """
    agent = await start_agent(GOOD)
    await kubelet.run_pod(manifest("holder", {NPU: 1}))
    held = kubelet.pod("holder").container().devices[NPU]
    await agent.stop()
    agent = await bad_start(start_agent, kubelet, text)
    await shows(NPU, 2, 2)
    await kubelet.wait_until(lambda: len(status.not_ready(agent.agent)) == 1, what="all but the reason")
    assert words in refused(agent)
    (line,) = [
        each for each in agent.logs if each["event"].startswith("configuration refused; the last good one, kept")
    ]
    assert ("error", True) == (line["log_level"], words in line["problems"][0])
    assert any(words in problem.message for problem in agent.agent.reconciler.problems)
    await kubelet.run_pod(manifest("second", {NPU: 1}))
    assert set(held).isdisjoint(kubelet.pod("second").container().devices[NPU])
    assert [] == kubelet.errors
    agent.edit(MORE)
    await kubelet.wait_until(lambda: not status.not_ready(agent.agent), what="the edit")
    assert "" == refused(agent)
    assert status.status(agent.agent)["config"]["lastReloadSuccessful"]
    await shows(NPU, 3, 3)


async def test_good_edits_are_stored_and_bad_ones_are_not(start_agent, kubelet, shows, kept):
    """The stored configuration is the last one that was in force."""
    agent = await start_agent(GOOD)
    agent.edit(MORE)
    await shows(NPU, 3, 3)
    agent.edit(SYNTAX)
    await kubelet.wait_until(lambda: agent.agent.config.failed, what="the refusal")
    await agent.stop()
    await bad_start(start_agent, kubelet, SEMANTIC)
    await shows(NPU, 3, 3)


async def test_a_partly_good_file_is_not_stored(start_agent, kubelet, shows, leave, kept):
    """With failOnInitError false, its good part is in force, but the last complete configuration stays stored."""
    await leave(GOOD + LENIENT)
    before = kept().read_bytes()
    half = "  - {name: half, resource: acme.dev/half, virtuell: {}}\n"
    agent = await start_agent(GOOD + half + LENIENT)
    await shows(NPU, 2, 2)
    assert ("", before) == (refused(agent), kept().read_bytes())
    await agent.stop()
    agent = await bad_start(start_agent, kubelet, SYNTAX)
    await shows(NPU, 2, 2)
    assert "is not YAML" in refused(agent)


@pytest.mark.parametrize("change", ["gone", "a directory without files", "a label's file is gone"])
async def test_missing_files_at_the_start(start_agent, kubelet, shows, directory, change):
    """With a missing mount, an empty ConfigMap or no file for this node, the stored configuration is used."""
    files = directory / "etc"
    files.mkdir()
    (files / "default.yaml").write_text(MORE)
    (files / "node-1.yaml").write_text(GOOD)
    agent = await start_agent(GOOD, config_files=(files,))
    await agent.stop()
    for file in files.iterdir():
        file.unlink()
    if change == "gone":
        files.rmdir()
    elif change == "a label's file is gone":
        (files / "default.yaml").write_text(SYNTAX)
    agent = await bad_start(start_agent, kubelet, GOOD, config_files=(files,))
    await shows(NPU, 2, 2)
    assert refused(agent)
    assert [str(files / "node-1.yaml")] == status.status(agent.agent)["config"]["files"]
    files.mkdir(exist_ok=True)
    (files / "default.yaml").write_text(MORE)
    await shows(NPU, 3, 3)
    assert "" == refused(agent)


async def test_custom_presets_are_stored_too(start_agent, kubelet, shows, directory):
    """A bad edit of a preset counts as a bad edit of the configuration."""
    presets = directory / "presets"
    presets.mkdir()
    (presets / "lab.yaml").write_text("count: 4\nmemory: 1Gi\n")
    text = GOOD.replace("{count: 2}", "{preset: lab}")
    agent = await start_agent(text, preset_dirs=[presets])
    await shows(NPU, 4, 4)
    await agent.stop()
    (presets / "lab.yaml").write_text("count: [\n")
    agent = await bad_start(start_agent, kubelet, text, preset_dirs=[presets])
    await shows(NPU, 4, 4)
    assert "lab.yaml:" in refused(agent)


@pytest.mark.parametrize("options", [{}, {"no_state": True}], ids=["nothing kept", "--no-state"])
async def test_without_a_stored_configuration_a_bad_file_ends_the_start(start_agent, options):
    """The error has only the problems of the file."""
    with pytest.raises(ConfigError) as ended:
        await start_agent(SEMANTIC, **options)
    assert all("vdev.yaml:3:" in str(problem) for problem in ended.value.problems)


def _changed(**changes):
    """Change values of the stored configuration, with a valid checksum."""

    def change(data):
        found = json.loads(data.partition(b"\n")[0])
        for name, value in changes.items():
            places = (found, found["config"], found["config"]["texts"])
            next(each for each in places if name in each)[name] = value
        body = json.dumps(found).encode()
        return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"

    return change


SPOILT = {
    "empty": (lambda _: b"", "the file is damaged"),
    "half": (lambda data: data[:-80], "the file is damaged"),
    "other bytes": (lambda data: data.replace(b"count: 2", b"count: 9"), "its checksum does not fit"),
    "newer": (_changed(version=9), "it has version 9, and this vdev knows version 3"),
    "another node's": (_changed(node="node-2"), "it is of node 'node-2'"),
    "other arguments": (_changed(given=["/etc/other.yaml"]), "it was kept for --config-file /etc/other.yaml"),
    "refused by this vdev": (
        _changed(files=[{"file": "vdev.yaml", "text": "version: v0\n"}]),
        "the last good configuration is refused as well: vdev.yaml:1:10",
    ),
}


async def test_an_unusable_stored_configuration(start_agent, leave, kept):
    """The start fails, with the problems of both."""
    await leave()
    data = kept().read_bytes()
    for name, (change, words) in SPOILT.items():
        kept().write_bytes(change(data))
        with pytest.raises(ConfigError) as ended:
            await start_agent(SEMANTIC)
        *of_file, last = map(str, ended.value.problems)
        assert ("unknown key 'virtuell'" in of_file[0], words in last) == (True, True), name
        assert "\n" not in last


async def test_the_stored_configuration_is_used_despite_a_wrong_device_path(start_agent, kubelet, shows, directory):
    """A device node was replaced by a file over a reboot. Other devices are served, and it is too when it is back."""
    host = FakeHost(directory / "host")
    host.node("ttyUSB0", "188:0")
    agent = await start_agent(GOOD + PORT.removeprefix("devices:\n"), host=host.host)
    await shows(UART, 1, 1)
    await agent.stop()
    node = directory / "host/dev/ttyUSB0"
    node.unlink()
    node.write_text("no device")
    agent = await bad_start(start_agent, kubelet, GOOD + PORT.removeprefix("devices:\n"), host=host.host)
    await shows(NPU, 2, 2)
    assert "is not a device node" in refused(agent)
    node.unlink()
    host.node("ttyUSB0", "188:0")
    await shows(UART, 1, 1)
    await kubelet.wait_until(lambda: not status.not_ready(agent.agent), what="the end of it")
    assert "" == refused(agent)


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("prepared_python")
async def test_with_real_processes(kubelet, directory, kept, shows):
    """The process serves the stored configuration until the file is good. Without one, it exits with 2."""
    async with Process(directory, kubelet, GOOD) as process:
        await shows(NPU, 2, 2)
        await ready(process.address)
        await kubelet.wait_until(lambda: [*(directory / "state").glob("state-*")], what="the configuration")
    event = "configuration refused; the last good one, kept from before the start, is used instead"
    for times in (1, 2):
        async with Process(directory, kubelet, SYNTAX) as process:
            told = functools.partial(_told, process, event, times)
            await kubelet.wait_until(told, what="the log")
            await shows(NPU, 2, 2)
            unready = await ask(process.address)
            assert ("503" in unready, "the last good one is used" in unready) == (True, True)
            code, shown = await command("status", "--run-dir", process.run_dir)
            assert (1, True) == (code, f"the last good one, from {kept()}" in shown)
    async with Process(directory, kubelet, SYNTAX) as process:
        await kubelet.wait_until(functools.partial(_told, process, event, 3), what="the log")
        process.edit(GOOD)
        await ready(process.address)
    run = ("run", "--config-file", directory / "vdev.yaml", "--kubelet-dir", kubelet.root, "--node-name", "node-1")
    run += ("--run-dir", directory / "run", "--cdi-dir", directory / "cdi", "--device-dir", directory / "devices")
    process.edit(SYNTAX)
    code, said = await command(*run, "--no-state")
    assert (2, 1) == (code, len(said.splitlines()))
    kept().write_text("spoilt")
    code, said = await command(*run, "--state-dir", directory / "state")
    assert (2, f"{kept()}: the last good configuration is not used instead: the file is damaged") == (
        code,
        said.splitlines()[-1],
    )


def _told(process, event, times):
    return sum(each["event"] == event for each in process.log()) == times


async def command(*arguments):
    """Run a command of vdev. Returns its exit code and output."""
    pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(
        forkserver.python(), "-m", "vdev", *map(str, arguments), stdout=pipe, stderr=both
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_refused_files_are_read_again_without_an_event(start_agent, kubelet, shows, leave, directory):
    """They may become valid because the node changes, so they are read at the interval of discovery."""
    wrong = directory / "port"
    wrong.write_text("no device")
    await leave()
    text = GOOD + f"  - {{name: port, resource: acme.dev/port, glob: {wrong}}}\n"
    agent = await bad_start(start_agent, kubelet, text, look_at_devices=0.2)
    assert f"{wrong} is not a device node" in refused(agent)
    wrong.unlink()
    await kubelet.wait_until(lambda: not status.not_ready(agent.agent), what="the end of it")
    assert "" == refused(agent)
