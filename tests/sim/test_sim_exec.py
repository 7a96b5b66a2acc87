"""`vdev sim --exec` with a plugin that is not vdev: a good one, and each typical defect."""

import asyncio
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.kit import forkserver
from vdev.cli import main
from vdev.errors import HostError, UsageError
from vdev.sim.scenarios import run as scenario_run
from vdev.sim.scenarios.node import NodeOptions
from vdev.sim.scenarios.scenario import NAMES

ROOT = Path(__file__).parents[2]
FOREIGN = ROOT / "tests" / "kit" / "foreign_plugin.py"
PLUGIN = f"PYTHON {FOREIGN} --socket-dir {{plugin_dir}} --state {{dir}}"
WITH_CHILD = f"{sys.executable}{PLUGIN.removeprefix('PYTHON')} --defect child"  # a group of processes
HOOKS = {"fail": "touch {dir}/0.broken", "heal": "rm {dir}/0.broken"}
READY = {"node": {"{resource}": {"capacity": {"atLeast": 1}, "allocatable": {"atLeast": 1}}}}

# By defect: the scenario that finds it, and the message.
FOUND = {
    "early": ("registration", "warning: registered-before-serving: acme.dev/widget: nothing listened on .*widget.sock"),
    "never-serves": (
        "registration",
        "no device plugin has registered; "
        "acme.dev/widget called Register, but nothing answers at widget.sock: serve before you register\n",
    ),
    "deaf": (
        "kubelet-restart",
        r"acme.dev/widget: capacity: expected 2 as remembered, seen 0; "
        r"acme.dev/widget: allocatable: expected 2 as remembered, seen 0; "
        "acme.dev/widget is not connected; when the kubelet starts, it must register again\n",
    ),
    "stale": (
        "kubelet-restart",
        r"acme.dev/widget: capacity: expected 2 as remembered, seen 0; "
        r"acme.dev/widget: allocatable: expected 2 as remembered, seen 0; "
        "acme.dev/widget called Register, but nothing answers at widget.sock: a kubelet that starts removes all "
        "sockets of the directory; serve again before you register\n",
    ),
    "leftover": ("plugin-crash", r"ended with exit code 1 by itself(.|\n)*\| listen unix .*address already in use"),
    "drops": ("health", "error: held-device-dropped: acme.dev/widget: held device 'widget-0' dropped from the list"),
    "drops-allocated": ("pod", "held-device-dropped"),
    "hangs": ("pod", "error: hung-rpc: acme.dev/widget: Allocate did not answer within 6 s"),
    "dies": ("pod", r"ended with exit code 2 by itself(.|\n)*\| panic: index out of range"),
    "forgets": ("plugin-restart", "error: held-device-dropped: acme.dev/widget: held device 'widget-"),
    "deaf-to-sigterm": ("registration", "the plugin did not end within 6 s of SIGTERM, and was killed"),
}


# Defects that are found only after a timeout; the others are found at once.
WAITED_FOR = ("deaf", "never-serves", "stale", "hangs", "deaf-to-sigterm")


async def played(*scenarios, command=PLUGIN, **options):
    """Play scenarios. Returns the exit code and the output."""
    run = {name: options.pop(name) for name in ("junit", "logs", "as_json") if name in options}
    out = io.StringIO()
    if "PYTHON" in command:
        command = command.replace("PYTHON", forkserver.python())
    node = NodeOptions(command=command, **{"timeout": 30, **options})
    with tempfile.TemporaryDirectory() as logs:
        run = {"logs": Path(logs), **run}
        code = await scenario_run.run(node, list(map(str, scenarios)), out=out, **run)
    return code, out.getvalue()


def scenario(directory, *steps, name="mine", **more):
    """A file with these steps."""
    path = directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"title": "Mine", "steps": list(steps), **more}))
    return path


@pytest.fixture(autouse=True)
def _modules(monkeypatch):
    """The plugin is a program of this checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("dra")])
async def test_a_good_plugin(name):
    """Every built-in scenario passes, also with --strict."""
    code, text = await played(name, hooks=HOOKS, strict=True)
    assert (0, f"{name}: ") == (code, text[: len(name) + 2]), text


@pytest.mark.parametrize("defect", [name for name in FOUND if name not in WAITED_FOR])
async def test_a_defect_is_found(defect):
    """A scenario fails and names the defect, even without --strict."""
    await finds(defect, timeout=30)


@pytest.mark.long
async def test_defects_that_are_found_after_a_timeout():
    """All of them run at the same time, with enough time for a plugin to start on a busy machine."""
    await asyncio.gather(*(finds(defect, timeout=6) for defect in WAITED_FOR))


async def finds(defect, timeout):
    name, said = FOUND[defect]
    code, text = await played(name, command=f"{PLUGIN} --defect {defect}", hooks=HOOKS, timeout=timeout)
    assert 1 == code, (defect, text)
    assert re.search(said, text), (defect, text)


async def test_a_resource_that_does_not_register_is_named():
    """The message has the resources that are registered, because the name may be mistyped."""
    code, text = await played("pod", resources=("acme.dev/widgets",), timeout=3)
    assert 1 == code
    assert "acme.dev/widgets is not registered; the plugin has registered acme.dev/widget" in text


async def ended(pid):
    """Whether a killed process ends, which may take a while on a busy machine."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = await asyncio.to_thread(select.select, [handle], [], [], 30)
    finally:
        os.close(handle)
    return bool(readable)


async def test_sigterm_ends_everything(tmp_path):
    """The hook and the plugin's process group are killed, and the run fails."""
    command = [forkserver.python(), "-m", "vdev", "sim", "--exec", WITH_CHILD, "--timeout", "60"]
    os.mkfifo(tmp_path / "begun")
    waits = scenario(tmp_path, {"expect": READY}, {"hook": "wait"})
    (tmp_path / "hook").write_text(f"#!/bin/sh\ncp $1/child {tmp_path}/pid; : >{tmp_path}/begun; sleep 60\n")
    (tmp_path / "hook").chmod(0o755)
    command += ["--scenario", waits, "--hook", f"wait={tmp_path}/hook {{dir}}"]
    command += ["--scenario", "pod", "--junit", tmp_path / "sim.xml"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    os.close(os.open(tmp_path / "begun", os.O_RDONLY))  # returns once the hook has opened it, too
    async with asyncio.timeout(60):
        os.kill(process.pid, signal.SIGTERM)
        _, said = await process.communicate()
    assert (1, b"vdev: ended by a signal before all scenarios were played\n") == (process.returncode, said)
    assert await ended(int((tmp_path / "pid").read_text()))
    assert [] == [*ET.parse(tmp_path / "sim.xml").iter("testcase")]


@pytest.mark.long
async def test_a_failure_in_junit_and_in_text(tmp_path):
    """Both have the step with its line, the difference, the history, and the plugin's output."""
    good = scenario(tmp_path, {"expect": READY}, name="good")
    bad = scenario(
        tmp_path,
        {"expect": READY},
        {"expect": {"node": {"acme.dev/widget": {"capacity": 3, "allocatable": 3}}}},
        name="bad",
    )
    code, text = await played(good, bad, timeout=6, junit=tmp_path / "j.xml", logs=tmp_path / "logs")
    assert 1 == code
    for expected in (
        f"  ✗ step 2 of 2, {bad}:",
        "    still not true after 6 s: acme.dev/widget: capacity: expected 3, seen 2; "
        "acme.dev/widget: allocatable: expected 3, seen 2\n",
        "  | registered acme.dev/widget\n",
        "      plugin   acme.dev/widget registered (widget.sock)\n",
        f"    the plugin's whole output: {tmp_path}/logs/bad.log\n",
    ):
        assert expected in text, text
    assert re.search(r"^2 scenarios in \d+\.\d s: 1 failed \(bad\)$", text, re.MULTILINE)
    suite = ET.parse(tmp_path / "j.xml").getroot().find("testsuite")
    assert ("2", "1", "0") == (suite.get("tests"), suite.get("failures"), suite.get("errors"))
    one, two = suite.findall("testcase")
    assert ("good", None, "bad") == (one.get("name"), one.find("failure"), two.get("name"))
    assert "expected 3, seen 2" in two.find("failure").get("message")
    assert two.find("failure").text.startswith(f"step 2 of 2, {bad}:")
    assert "registered acme.dev/widget" in two.find("system-out").text
    assert "registered acme.dev/widget\n" == (tmp_path / "logs" / "bad.log").read_text()
    assert (tmp_path / "logs" / "good.log").exists()  # it may have ended before any output of the plugin


async def test_events_of_scenarios_are_as_documented(tmp_path):
    """They come between those of the kubelet, and each field is in the table."""
    from tests.sim.conftest import documented_events

    path = scenario(tmp_path, {"expect": READY}, {"remember": None})
    code, text = await played(path, as_json=True)
    events = [json.loads(line) for line in text.splitlines()]
    assert 0 == code, text
    ours = [each for each in events if each["event"] in ("scenario", "step")]
    assert ["began", "done", "done", "passed"] == [each["outcome"] for each in ours]
    assert {"kubelet", "registered", "node"} <= {each["event"] for each in events}
    for each in events:
        assert set(each) - {"event"} <= documented_events()[each["event"]]


async def test_a_plugin_that_ends_is_started_again(tmp_path):
    """With --restart it is restarted; otherwise, its end is the failure."""
    once = f"sh -c 'test -e {{dir}}/once || {{ touch {{dir}}/once; echo nobody there; exit 3; }}; exec {PLUGIN}'"
    path = scenario(tmp_path, {"expect": READY})
    code, text = await played(path, command=once)
    assert 1 == code
    assert "\n      | nobody there\n" in text
    assert (
        "the plugin ended with exit code 3 by itself (--restart would restart it); the last lines of its output:"
        in text
    )
    code, text = await played(path, command=once, again=True)
    assert 0 == code, text


async def test_a_configuration_of_the_plugins_own(tmp_path):
    """The scenario's configuration and its edits are written for any plugin."""
    steps = [{"expect": READY}, {"editConfiguration": "two\n"}, {"hook": "look"}]
    path = scenario(tmp_path, *steps, configuration="one\n")
    hooks = {"look": "grep two {configuration}"}
    code, text = await played(path, command=f"sh -c 'grep one {{configuration}} && exec {PLUGIN}'", hooks=hooks)
    assert 0 == code, text
    with pytest.raises(
        UsageError, match=r"mine\.yaml: it has a configuration for the plugin; name its file in --exec by"
    ):
        await played(path, hooks=hooks)


async def test_the_output_of_failures_is_kept(tmp_path, directory, monkeypatch):
    """Only that of failures is kept, and the message has its path."""
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    path = scenario(tmp_path, {"hook": "end"})
    code, text = await played(path, command="sh -c 'echo hello; sleep 60'", hooks={"end": "false"}, logs=None)
    log = Path(re.search("whole output: (.*)", text)[1])
    assert (1, "hello\n") == (code, log.read_text())
    assert [log.parent] == [*directory.iterdir()]
    code, _ = await played(path, command="sleep 60", hooks={"end": "true"}, logs=None)
    assert (0, [log.parent]) == (code, [*directory.iterdir()])


async def test_results_that_cannot_be_written(tmp_path):
    """The error comes before a scenario is played."""
    path = scenario(tmp_path, {"hook": "touch"})
    with pytest.raises(HostError, match="cannot write the results"):
        await played(path, hooks={"touch": f"touch {tmp_path}/played"}, junit=tmp_path / "none" / "sim.xml")
    assert not (tmp_path / "played").exists()


async def test_a_hook_that_fails(tmp_path):
    """It fails its step, with its command and its output. Its background processes are killed."""
    path = scenario(tmp_path, {"hook": "fail"})
    command = f"sh -c 'sleep 60 & echo $! >{tmp_path}/pid; echo no such device; echo bye; exit 4'"
    code, text = await played(path, command="sleep 60", hooks={"fail": command})
    assert 1 == code
    assert re.search(rf"hook fail: {re.escape(command)} ended with exit code 4: no such device\n *bye\n", text), text
    assert await ended(int((tmp_path / "pid").read_text()))
    code, text = await played(path, command="sleep 60", hooks={"fail": "sleep 60"}, timeout=0.3)
    assert "hook fail: sleep 60 did not end within 0.3 s" in text
    _, text = await played(path, command="sleep 60", hooks={"fail": "/no/hook"})
    assert "hook fail: cannot start /no/hook: no such file or directory" in text.lower()


@pytest.mark.long
async def test_findings_that_are_allowed(tmp_path):
    """They are reported and ignored; with --strict, warnings count too."""
    path = scenario(tmp_path, {"expect": READY})
    twice = f"{PLUGIN} --defect duplicate"
    code, text = await played(path, command=twice, allow=frozenset({"duplicate-id"}))
    assert (0, True) == (code, "  ! error: duplicate-id" in text), text
    code, text = await played(path, command=f"{PLUGIN} --defect early", strict=True)
    assert 1 == code, text


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ({"containers": {"mian": {"devices": {}}}}, "no container 'mian' in pod default/one; it has ['main']"),
        ({"phase": {"matches": "Run("}}, "matches: 'Run(' is not a regular expression: missing ), unterminated"),
    ],
    ids=["container", "pattern"],
)
async def test_mistakes_in_an_expectation_fail_its_step(tmp_path, pod, message):
    pods = {"one": {"spec": {"containers": [{"name": "main"}]}}}
    path = scenario(tmp_path, {"createPod": "one"}, {"expect": {"pods": {"one": pod}}}, pods=pods)
    code, text = await played(path, timeout=6, junit=tmp_path / "j.xml")
    assert 1 == code
    assert f"step 2 of 2, {path}" in text, text
    assert message in text, text
    assert "1" == ET.parse(tmp_path / "j.xml").getroot().find("testsuite").get("failures")


async def test_a_plugin_that_does_nothing():
    """The failure says that nothing registered."""
    for name, kind in (("registration", "device plugin"), ("dra-registration", "DRA driver")):
        code, text = await played(name, command="sleep 60", timeout=0.5)
        assert 1 == code
        assert f"still not true after 0.5 s: no {kind} has registered" in text
        assert "    the plugin: the last lines of its output: none\n" in text


@pytest.mark.long
async def test_a_dra_driver_that_publishes_nothing(tmp_path):
    """It fails if it was given an API server; without one, it cannot publish."""
    config = tmp_path / "npus.yaml"
    entry = {"name": "npu", "resource": "acme.dev/npu", "advertise": ["dra"], "virtual": {"count": 1}}
    config.write_text(yaml.safe_dump({"version": "v1", "devices": [entry]}))
    places = "--kubelet-dir {kubelet_dir} --cdi-dir {cdi_dir} --run-dir {dir} --no-state"
    command = f"{forkserver.python()} -m vdev run --config-file {config} --node-name sim-node {places}"
    (led, told), (alone, unasked) = await asyncio.gather(
        played("dra-registration", command=f"env UNUSED={{kubeconfig}} {command}", timeout=8),
        played("dra-registration", command=command),
    )
    assert 1 == led, told
    assert "still not true after 8 s: slices of acme.dev: expected 'any', seen None" in told, told
    assert "! no ResourceSlice was looked at" not in told, told
    assert 0 == alone, unasked
    assert "  ! no ResourceSlice was looked at: the driver was given no API server" in unasked, unasked


def test_usage(tmp_path, capsys):
    """Errors in options are reported before anything is started."""
    bare = tmp_path / "bare.yaml"
    bare.write_text("title: x\nsteps: [{expect: {node: {{resource}: remembered}}}]\n")
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    reasons = scenario(tmp_path, {"expect": {"unhealthy": {"acme.dev/widget": {"widget-0": "x"}}}}, name="reasons")
    for arguments, said in (
        (["--scenario", "pod"], "--scenario needs a plugin to play with; give --exec COMMAND"),
        (["--exec", "no-such-program"], "--exec: 'no-such-program' is not an executable program"),
        (["--exec", str(script)], f"--exec: '{script}' is not an executable program"),
        (["--exec", "true {plugindir}"], "unknown placeholder {plugindir}; there are {kubelet_dir}, {plugin_dir}"),
        (["--exec", "true 'a"], "not a command: no closing quotation"),
        (["--exec", ""], "the command is empty"),
        (
            ["--exec", "true", "--scenario", "podd"],
            "scenario 'podd': no such file, and no built-in scenario; did you mean 'pod'? built-in scenarios: ",
        ),
        (["--exec", "true", "--scenario", "zzz.yaml"], "no built-in scenario; built-in scenarios: "),
        (["--exec", "true", "--scenario", str(bare)], 'write a placeholder in quotes: "{resource}"'),
        (
            ["--exec", "true", "--scenario", "health"],
            "it needs a command for the hook 'fail'; give --hook fail=COMMAND",
        ),
        (["--exec", "true", "--scenario", str(reasons)], "it expects reasons of Unhealthy devices, which only vdev"),
        (["--exec", "true", "--scenario", "pod", "--scenario", "pod"], "two scenarios are called 'pod'"),
        (["--exec", "true", "--pods", "."], "--pods is for the kubelet alone"),
        (["--exec", "true", "--hook", "fail"], "--hook: expected KEY=VALUE, such as fail='rm {dir}/0', got 'fail'"),
        (["--exec", "true", "--hook", "fial=true"], "--hook fial: no scenario has such a hook; there are fail, heal"),
        (["--exec", "true", "--timeout", "0"], "--timeout: expected seconds above 0"),
        (
            ["--exec", "true", "--allow", "panic", "--allow", "held-device-droped"],
            "--allow: there is no finding 'held-device-droped'; did you mean 'held-device-dropped'?",
        ),
        (["--exec", "true", "--allow", "zzz"], "--allow: there is no finding 'zzz'; the codes are "),
    ):
        assert 2 == main(["sim", *arguments]), arguments
        assert said in capsys.readouterr().err


def test_the_built_in_scenarios(capsys):
    """All files are listed with the hooks that they need."""
    assert 0 == main(["sim", "--list-scenarios"])
    printed = capsys.readouterr().out
    assert [*NAMES] == [line.split()[0] for line in printed.splitlines()]
    assert "--hook fail=COMMAND and --hook heal=COMMAND" in printed
    directory = Path(scenario_run.__file__).parent / "files"
    assert set(NAMES) == {path.stem for path in directory.iterdir()}
