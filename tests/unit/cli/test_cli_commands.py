"""The command line: exit codes, output, and imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import forkserver
from vdev.cli import COMMANDS, main

CONFIGS = Path(__file__).parents[3] / "configs"
GOOD = "version: v1\ndevices:\n- {name: a, resource: example.com/a, virtual: {count: 2}}\n"
BAD = "devices:\n- {name: a, resource: example, virtual: {cont: 2}}\n"
A30 = "name: g, resource: nvidia.com/gpu, virtual: {preset: a30, count: 2}"
SHARED = "sharing: {timeSlicing: {resources: [{name: %s}]}}"


@pytest.fixture
def good(written):
    return str(written(GOOD, "good.yaml"))


@pytest.fixture
def bad(written):
    """A file with two errors."""
    return str(written(BAD, "bad.yaml"))


def test_vdev_alone_prints_help(vdev):
    code, text, _ = vdev()
    assert 0 == code
    assert all(name in text and summary in text for name, summary in COMMANDS.items())


def test_every_command_has_help_with_an_example(subtests, vdev):
    for name in COMMANDS:
        with subtests.test(name=name):
            code, text, _ = vdev(name, "--help")
            assert 0 == code
            assert f"vdev {name}" in text
            assert "example" in text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("import", "Supported are generic-device-plugin (file, flags, DaemonSet), smarter-device-manager, the SR-IOV"),
        ("record", "Sources are the kubelet (PodResources: "),
        ("init", "The schema for editors is written beside the file."),
        ("sim", "with --output json, one object per line"),
    ],
)
def test_help_says_what_is_read_and_written(command, said, vdev):
    assert said in vdev(command, "--help")[1]


@pytest.mark.parametrize("command", ["validate", "plan", "config", "run --config-file"])
@pytest.mark.parametrize("name", ["y" * 300, "loop.yaml"])
def test_a_path_that_cannot_be_read_is_exit_code_2(command, name, tmp_path, vdev, monkeypatch):
    monkeypatch.setenv(
        "VDEV_STATE_DIR", str(tmp_path)
    )  # this machine's agent may have stored a last good configuration
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    code, _, said = vdev(*command.split(), tmp_path / name)
    (line,) = said.splitlines()
    assert (2, True) == (code, f"{name}: cannot be read: " in line)


def test_wrong_usage_is_exit_code_2_on_stderr(subtests, vdev):
    cases = [
        (["validat"], "unknown command 'validat'; did you mean 'validate'?"),
        (["xyzzy"], "unknown command 'xyzzy'; expected one of"),
        (["validate"], "FILE"),
        (["run", "--config", "f"], "unknown argument '--config'; did you mean '--config-file'?"),
        (["validate", "f", "--mig-strateg=x"], "unknown argument '--mig-strateg=x'; did you mean '--mig-strategy'?"),
        (["node", "show", "--dry-run"], "unknown argument '--dry-run'; see vdev node --help"),
        (
            ["config", str(CONFIGS / "mig-single.yaml"), "--mig-strategy=x"],
            "flag --mig-strategy: flags.migStrategy: the",
        ),
        (["validate", "f", "--output=xml"], "xml"),
    ]
    for arguments, words in cases:
        with subtests.test(arguments=arguments):
            code, out, said = vdev(*arguments)
            assert (2, "", True) == (code, out, words in said)


def test_validate_a_valid_file(good, vdev):
    assert (0, f"{good}: valid\n", "") == vdev("validate", good)


def test_every_error_is_a_line_with_its_place(bad, vdev):
    for command in ("validate", "config"):
        code, _, said = vdev(command, bad)
        places = [": ".join(line.split(": ")[:2]) for line in said.splitlines()]
        assert (2, [f"{bad}:2:23: devices[0].resource", f"{bad}:2:42: devices[0].virtual.cont"]) == (code, places)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            ", ".join(f"a{number}: {number}" for number in range(40)),
            "10 attributes of npu are left out of its ResourceSlices: ",
        ),
        (f'long: "{{id}}{" {resource}" * 6}"', "the attribute long of npu/0 is left out: "),
    ],
)
def test_validate_reports_attributes_that_are_left_out(attributes, text, written, vdev):
    """Warnings that apply to every node appear once."""
    entry = "name: npu, resource: acme.dev/npu, virtual: {count: 3}, advertise: [dra]"
    path = written(f"version: v1\ndevices: [{{{entry}, dra: {{attributes: {{{attributes}}}}}}}]\n")
    code, _, said = vdev("validate", path)
    assert (0, 1) == (code, said.count(text))


def test_validate_as_json(bad, vdev):
    code, out, _ = vdev("validate", "--output", "json", bad)
    answer = json.loads(out)
    assert (2, False) == (code, answer["valid"])
    assert {"severity", "where", "file", "line", "column", "path", "message", "hint"} == answer["problems"][1].keys()
    assert ("error", bad, 2, 42, "devices[0].virtual.cont") == tuple(
        answer["problems"][1][key] for key in ("severity", "file", "line", "column", "path")
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"flags: {{migStrategy: single}}\ndevices: [{{{A30}, partitions: {{0: [1g.6gb]}}}}]",
            "with migStrategy single all devices must be whole, or all must be partitioned alike",
        ),
        (
            f"devices: [{{{A30}, onNodes: [gpu-*]}}]\n{SHARED % 'gpu, replicas: 2, devices: [7]'}",
            "no device with index '7'",
        ),
        (
            f"devices: [{{name: {'g' * 40}, resource: a.b/g, virtual: {{count: 9}}}}]\n"
            + SHARED % "a.b/g, replicas: 9000",
            "more than the 4194304 that the kubelet receives",
        ),
        (
            "flags: {mpsRoot: /mps}\n"
            "devices: [{name: p, resource: a.b/p, virtual: {attributes: {computeCapability: 6.1}}}]\n"
            "sharing: {mps: {resources: [{name: a.b/p, replicas: 17}]}}",
            "MPS serves at most 16 clients of a device of compute capability 6.1",
        ),
    ],
)
def test_validate_finds_errors_that_do_not_depend_on_the_node(text, words, written, vdev):
    code, _, said = vdev("validate", written(text))
    assert (2, True) == (code, words in said)


def test_config_shows_where_values_come_from(good, vdev, monkeypatch):
    monkeypatch.setenv("MIG_STRATEGY", "mixed")
    code, text, _ = vdev("config", good, "--pass-device-specs")
    assert 0 == code
    for line in (
        "migStrategy: mixed  # env MIG_STRATEGY",
        "passDeviceSpecs: true  # flag --pass-device-specs",
        f"count: 2  # {good}:3:55",
        "deviceIDStrategy: uuid  # default",
    ):
        assert line in text
    _, text, _ = vdev("config", good, "-o", "json")
    values = {each["path"]: each for each in json.loads(text)["values"]}
    count = {"path": "devices[0].virtual.count", "value": 2, "source": f"{good}:3:55"}
    assert count == values["devices[0].virtual.count"]


def test_schema_prints_the_published_schema(vdev):
    assert (0, (CONFIGS / "vdev.schema.json").read_text(), "") == vdev("schema")


BLOCKED = """
import json, sys
class Blocked:
    names, command = (), ""
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise SystemExit(f"{self.command}: {name} is imported")  # which no `except ImportError` hides
sys.meta_path.insert(0, Blocked())
for Blocked.names, arguments in json.loads(sys.argv[1]):
    Blocked.command = " ".join(arguments)
    from vdev.cli import main
    try:
        code = main(arguments)
    except SystemExit as ended:
        if ended.code:
            raise
        code = 0
    if code:
        sys.exit(f"{Blocked.command}: exit code {code}")
"""
PLUGIN = ("grpc", "inotify_simple", "google", "structlog", "uvicorn", "starlette")


def test_offline_commands_import_no_part_of_the_running_plugin(good):
    """They start fast, and work without these packages, for example on macOS.

    One process runs all of them; each may import at least the packages of the commands before it.
    """
    commands = [
        ([*PLUGIN, "asyncio", "pydantic"], ["--help"]),
        ([*PLUGIN, "asyncio"], ["schema"]),
        (PLUGIN, ["run", "--help"]),
        (PLUGIN, ["validate", good]),
        (PLUGIN, ["config", good]),
        (PLUGIN, ["plan", good]),
        (PLUGIN, ["allocate", good, "--resource", "example.com/a", "a-0"]),
    ]
    command = [sys.executable, "-c", BLOCKED, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    assert ["vdev", "$schema", "a-0"] == [each for each in ("vdev", "$schema", "a-0") if each in done.stdout]


def test_each_wrong_option_is_one_line(vdev, monkeypatch):
    monkeypatch.setenv("VDEV_BOOT_WAIT", "soon")
    code, _, said = vdev("run", "--config-file", "f", "--log-level=loud", "--no-state=perhaps")
    assert 2 == code
    assert [
        "vdev: flag --no-state: 'perhaps' is not a boolean; expected true or false",
        "vdev: env VDEV_BOOT_WAIT: expected a duration, got the string 'soon'; "
        "such as 200ms, 5s, 1m30s, or a number of seconds",
        "vdev: flag --log-level: 'loud': Input should be 'debug', 'info', 'warning' or 'error'",
    ] == said.splitlines()


def test_a_closed_pipe_gives_no_traceback():
    command = f"{forkserver.python()} -m vdev schema | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (True, "") == (done.returncode in (0, 141), done.stderr)


def test_output_to_a_full_disk_is_one_error():
    command = f"{forkserver.python()} -m vdev schema > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (1, "vdev: the output cannot be written: No space left on device\n") == (done.returncode, done.stderr)


CHOSEN = """\
flags: {migStrategy: mixed}
devices:
  - name: gpu
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb}
    partitions: {fromLabel: nvidia.com/mig.config, default: all-disabled}
"""


@pytest.mark.parametrize(
    ("label", "resource", "count"),
    [(None, "nvidia.com/gpu", 1), ("all-1g.5gb", "nvidia.com/mig-1g.5gb", 7), ("odd", "nvidia.com/gpu", 1)],
)
def test_plan_shows_the_layout_of_a_label(written, vdev, label, resource, count):
    given = [] if label is None else ["--label", f"nvidia.com/mig.config={label}"]
    code, out, _ = vdev("plan", written(CHOSEN), "-o", "json", *given)
    plan = json.loads(out)
    assert 0 == code
    assert {resource: count} == {each["name"]: len(each["devices"]) for each in plan["resources"] if each["devices"]}
    states = {None: {}, "odd": {"nvidia.com/mig.config.state": "failed"}}
    assert states.get(label, {"nvidia.com/mig.config.state": "success"}) == plan["nodeLabels"]
    assert (label == "odd") == any(
        "would fail: there is no layout 'odd'" in each["message"] for each in plan["problems"]
    )


# --- sources of configurations ---------------------------------------------------------------------------------------


def of_nodes(directory, **contents):
    """Write files into a directory like that of a mounted ConfigMap."""
    for name, text in contents.items():
        (directory / f"{name}.yaml").write_text(text)
    (directory / "..data").mkdir()
    (directory / "vdev.schema.json").write_text("{}")
    return str(directory)


def test_every_configuration_of_a_directory_is_validated(tmp_path, vdev):
    """Each file is checked alone, because a node uses one file; the schema for editors is skipped."""
    directory = of_nodes(tmp_path, good=GOOD, bad=BAD, default=GOOD)
    code, out, said = vdev("validate", directory)
    assert (2, [f"{directory}/default.yaml: valid", f"{directory}/good.yaml: valid"]) == (code, out.splitlines())
    assert said
    assert all(f"{directory}/bad.yaml:" in line for line in said.splitlines())


def test_every_key_of_a_configmap_is_validated(tmp_path, vdev):
    """Keys of a ConfigMap need no suffix. In other directories, a file without one is not a configuration."""
    directory = Path(of_nodes(tmp_path, good=GOOD))
    (directory / "a100").write_text(BAD)
    code, _, said = vdev("validate", directory)
    assert (2, True) == (code, f"{directory}/a100:" in said)
    (directory / "..data").rmdir()
    assert 0 == vdev("validate", directory)[0]


def test_plan_uses_the_file_of_a_label(tmp_path, vdev):
    directory = of_nodes(tmp_path, good=GOOD, bad=BAD)
    asked = ["plan", directory, "--node-name", "bad", "--label", "vdev.dev/config=good"]
    code, printed, _ = vdev(*asked)
    assert 0 == code
    assert printed.startswith(f"node bad, with {directory}/good.yaml\n")
    assert "example.com/a: 2 devices" in printed
    code, printed, _ = vdev(*asked, "--output", "json")
    assert (0, [f"{directory}/good.yaml"]) == (code, json.loads(printed)["files"])


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_a_directory_without_a_file_for_the_node_is_an_error(command, tmp_path, vdev):
    code, _, said = vdev(command, of_nodes(tmp_path, a=GOOD), "--node-name", "n")
    assert 2 == code
    assert "no file for node n: no label vdev.dev/config, no n.yaml, no default.yaml; there are a.yaml" in said


@pytest.mark.parametrize("command", ["plan", "validate", "config"])
def test_a_dash_is_the_standard_input(command):
    done = subprocess.run(
        [forkserver.python(), "-m", "vdev", command, "-"], input=GOOD, capture_output=True, text=True, check=True
    )
    assert done.stdout


OF_OTHERS = """\
devices:
  - {name: h100, resource: nvidia.com/gpu, onNodes: gpu-worker*, virtual: {preset: h100-sxm5-80gb}}
  - {name: tty, resource: example.com/tty, onNodes: [edge-*, lab], virtual: {}}
sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}, {name: mig-1g.10gb, replicas: 2}]}}
"""


def test_plan_for_a_node_without_entries(written, vdev):
    """Sharing of devices for other nodes is not an error."""
    file = written(OF_OTHERS)
    code, _, said = vdev("plan", file, "--node", "vm")
    notices = [
        f"{file}:{place}: notice: entry {what}, this is vm; --node NAME plans for another node"
        for place, what in (
            ("2:5: devices[0]", "h100 is for nodes gpu-worker*"),
            ("3:5: devices[1]", "tty is for nodes edge-*, lab"),
        )
    ]
    assert (0, notices) == (code, said.splitlines())
    code, out, _ = vdev("plan", file, "--node", "vm", "--output", "json")
    places = [tuple(each[key] for key in ("file", "line", "column", "path")) for each in json.loads(out)["problems"]]
    assert (0, [(str(file), 2, 5, "devices[0]"), (str(file), 3, 5, "devices[1]")]) == (code, places)
    code, _, said = vdev("plan", file, "--node", "lab")
    assert (0, "") == (code, said)
    code, _, said = vdev("allocate", file, "--node", "vm", "--resource", "nvidia.com/gpu")
    assert (2, True) == (code, "entry h100 is for nodes gpu-worker*, this is vm" in said)


def test_sharing_of_an_unknown_resource_is_a_warning_on_every_node(written, vdev):
    file = written(OF_OTHERS.replace("name: gpu,", "name: gqu,"))
    for node in ("vm", "lab", "gpu-worker1"):
        code, _, said = vdev("plan", file, "--node", node)
        assert (0, True) == (code, "warning: sharing names 'nvidia.com/gqu', which no entry has" in said)


@pytest.mark.parametrize("command", ["validate", "plan"])
@pytest.mark.parametrize(
    ("more", "name", "near"),
    [
        ("resources: {gpus: [{pattern: '*', name: a100}]}", "nvidia.com/gpu", "nvidia.com/a100"),
        ("flags: {migStrategy: none}", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu"),
    ],
)
def test_sharing_of_a_name_that_no_device_gets_is_a_warning(command, more, name, near, written, vdev):
    """Renamed devices do not have the entry's name, and there are no names of partitions without partitions."""
    file = written(
        "devices: [{name: gpu, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb}}]\n"
        f"sharing: {{timeSlicing: {{resources: [{{name: {name}, replicas: 2}}]}}}}\n{more}\n"
    )
    code, _, said = vdev(command, file)
    expected = f"warning: sharing names {name!r}, which no entry has; did you mean {near!r}?"
    assert (0, True) == (code, expected in said)


def test_an_interrupt_is_exit_code_130(monkeypatch, good, vdev):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("vdev.config.load", interrupted)
    assert 130 == vdev("validate", good)[0]


@pytest.mark.parametrize("command", ["validate", "config", "plan", "dra classes", "allocate --resource a.b/c"])
def test_on_a_terminal_a_problem_has_its_source_line(command, tmp_path, monkeypatch, capsys):
    """A caret stands below the mistake. Output that goes to a file or a program has the messages alone."""
    file = tmp_path / "vdev.yaml"
    file.write_text("version: v1\ndevices:\n  - {name: a, resource: a.b/c, virtual: {cuont: 3}}\n")
    assert 2 == main([*command.split(), str(file)])
    (message,) = capsys.readouterr().err.splitlines()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert 2 == main([*command.split(), str(file)])
    shown, line, caret = capsys.readouterr().err.splitlines()
    assert message == shown
    assert line[caret.index("^") :].startswith("cuont: 3")
