"""Public interfaces do not change silently: each promise is a line in `tests/promises`, which these tests check.

`ADD_PROMISES=1 pytest tests/component/test_promises.py` adds new promises. If a promise is broken on purpose, put `- `
before its line and the reason after it: `- plan.nodeLabels: object  # 0.3.0: moved under node`.
"""

import contextlib
import io
import json
import os
import re
from pathlib import Path

import pytest

import vdev.sim
import vdev.testing
from tests.kit import promises
from vdev.agent import command_socket
from vdev.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
CONFIG = """
version: v1
devices:
- name: gpu
  resource: nvidia.com/gpu
  virtual: {preset: a30, count: 2}
  partitions: {"0": [1g.6gb, 2g.12gb]}
- name: npu
  resource: acme.dev/npu
  virtual: {count: 2, memory: 1Gi, numa: 0, attributes: {the-model: X1}}
  container: {env: {MODEL: "{attributes.the-model}"}, mounts: [{hostPath: /tmp, containerPath: /acme}]}
- name: a-sink
  resource: example.com/sink
  glob: /dev/null
  labels: {acme.dev/sink: "yes"}
  conditions: [{type: SinkHealthy}]
sharing: {timeSlicing: {resources: [{name: acme.dev/npu, replicas: 2}, {name: acme.dev/none, replicas: 2}]}}
flags: {migStrategy: mixed}
node: {labels: true, conditions: true}
faults: {rules: [{name: sick, devices: [npu/0], health: Unhealthy, reason: broken}]}
"""
OTHER = "version: v1\ndevices: [{name: npu, resource: acme.dev/npu, virtual: {count: 3}}]\n"


def check(name, promised):
    """Compare promises with the record, or with ADD_PROMISES add new ones to it."""
    record = ROOT / "tests/promises" / f"{name}.txt"
    text = record.read_text() if record.exists() else ""
    new, wrong = promises.differences(text, promised)
    if new and os.environ.get("ADD_PROMISES"):
        record.write_text(
            "\n".join(sorted([*text.splitlines(), *new], key=lambda line: line.removeprefix("- "))) + "\n"
        )
        new = []
    assert not wrong, f"promises of {record.name} are broken:\n" + "\n".join(wrong)
    assert not new, f"promises to add to {record.name}, by ADD_PROMISES=1:\n" + "\n".join(new)


def printed(*arguments):
    """The output of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(arguments)
    return out.getvalue()


def test_the_embedded_kubelet():
    """`vdev.sim`: its names, parameters, attributes and values."""
    check("sim", promises.of_module(vdev.sim))


def test_the_fixtures():
    """`vdev.testing`: the fixtures for pytest."""
    check("testing", promises.of_module(vdev.testing))


def test_the_configuration_file():
    """Its keys, their types and defaults."""
    check("file", promises.of_schema(json.loads((ROOT / "configs/vdev.schema.json").read_text())))


def test_the_command_line(monkeypatch):
    """Commands, arguments and flags by `--help`; those of `vdev run` with variables and defaults."""
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = []
    for command in COMMANDS:
        text = printed(command, "--help")
        actions = re.search(r"^actions:\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
        for action in re.findall(r"^ {4}([a-z-]+)  ", actions[1], re.MULTILINE) if actions else []:
            lines += promises.of_help(f"vdev {command} {action}", printed(command, action, "--help"))
        lines += [f"vdev {command}", *([] if actions else promises.of_help(f"vdev {command}", text))]
    check("commands", (line for line in lines if ": " not in line or line.startswith("vdev run ")))


@pytest.fixture
def files(tmp_path):
    """A configuration, another one, and one with errors and a warning."""
    names = {"good": CONFIG, "other": OTHER, "bad": OTHER.replace("count", "cuont")}
    for name, text in names.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in names}


def test_documents_of_offline_commands(files):
    """The keys of `--output json`."""
    good, other, json_out = files["good"], files["other"], ("--output", "json")
    documents = [
        ("plan", ["plan", good, *json_out]),
        ("plan", ["plan", good, "--against", other, *json_out]),
        ("plan", ["plan", other, "--against", good, *json_out]),
        ("validate", ["validate", files["bad"], *json_out]),
        ("config", ["config", good, *json_out]),
        ("allocate", ["allocate", good, "--resource", "acme.dev/npu", "npu-1::0", *json_out]),
        ("allocate", ["allocate", good, "--resource", "example.com/sink", "a-sink-null", *json_out]),
    ]
    answers = [(name, json.loads(printed(*command))) for name, command in documents]
    check("documents", (line for name, answer in answers for line in promises.of_document(name, answer)))


async def test_the_status_document(start_agent, kubelet, directory):
    """The keys of `vdev status --output json`, which are also those of `/status`, and of `vdev fault list`."""
    agent = await start_agent(CONFIG, run_dir=directory / "run", fault_injection=True)
    pod = await kubelet.run_pod(vdev.sim.manifest("holder", {"acme.dev/npu": 1}))
    assert vdev.sim.Phase.RUNNING is pod.phase
    await kubelet.wait_until(lambda: agent.agent.holders.holders, what="the holder to be known")
    lines = []
    for name in ("status", "fault-list"):
        document = await command_socket.ask(agent.agent.options.run_dir, {"do": name})
        lines += promises.of_document(name, document)
    check("status", lines)
