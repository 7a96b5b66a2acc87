"""The command line: exit codes, output, and what is imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import forkserver
from vdev.cli import COMMANDS, main

GOOD = "version: v1\ndevices:\n- {name: a, resource: example.com/a, virtual: {count: 2}}\n"
BAD = "devices:\n- {name: a, resource: example, virtual: {cont: 2}}\n"
A30 = "name: g, resource: nvidia.com/gpu, virtual: {preset: a30, count: 2}"
SHARED = "sharing: {timeSlicing: {resources: [{name: %s}]}}"


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    """A file with two errors."""
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return str(path)


def test_vdev_alone_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main([])
    text = capsys.readouterr().out
    assert all(name in text and summary in text for name, summary in COMMANDS.items())


def test_every_command_has_help_with_an_example(subtests, capsys):
    for name in COMMANDS:
        with subtests.test(name=name):
            assert 0 == main([name, "--help"])
            text = capsys.readouterr().out
            assert f"vdev {name}" in text
            assert "example" in text


def test_a_plan_fits_the_terminal(good, capsys, monkeypatch):
    """A long name of a resource is cut, and so is whatever follows it in the line."""
    Path(good).write_text(GOOD.replace("example.com/a", f"example.com/{'a' * 60}"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert 0 == main(["plan", good])
    assert 80 == max(map(len, capsys.readouterr().out.splitlines()))


@pytest.mark.parametrize("command", ["validate", "plan", "config", "run --config-file"])
@pytest.mark.parametrize("name", ["y" * 300, "loop.yaml"])
def test_a_path_that_cannot_be_read_is_exit_code_2(
    command: str,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VDEV_STATE_DIR", str(tmp_path))  # an agent of this machine may have left a last good one
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert 2 == main([*command.split(), str(tmp_path / name)])
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name}: cannot be read: " in line


def test_wrong_usage_is_exit_code_2_on_stderr(subtests, capsys):
    cases = [
        (["validat"], "unknown command 'validat'; did you mean 'validate'?"),
        (["xyzzy"], "unknown command 'xyzzy'; expected one of"),
        (["validate"], "FILE"),
        (["run", "--config", "f"], "unknown argument '--config'; did you mean '--config-file'?"),
        (["plan", "f", "--no-state"], "vdev plan takes no --no-state; it is an option of vdev run"),
        (["validate", "f", "--mig-strateg=x"], "unknown argument '--mig-strateg=x'; did you mean '--mig-strategy'?"),
        (["node", "show", "--dry-run"], "unknown argument '--dry-run'; see vdev node --help"),
        (["validate", "f", "--mig-strategy=x"], "flag --mig-strategy: 'x' is not allowed"),
        (["validate", "f", "--output=xml"], "xml"),
    ]
    for arguments, words in cases:
        with subtests.test(arguments=arguments):
            assert 2 == main(arguments)
            captured = capsys.readouterr()
            assert "" == captured.out
            assert words in captured.err


def test_validate_says_that_a_file_is_valid(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["validate", good])
    assert f"{good}: valid\n" == capsys.readouterr().out


def test_validate_shows_every_error_one_per_line(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["validate", bad])
    lines = capsys.readouterr().err.splitlines()
    assert [f"{bad}:2:23: devices[0].resource", f"{bad}:2:42: devices[0].virtual.cont"] == [
        ": ".join(line.split(": ")[:2]) for line in lines
    ]


def test_validate_says_what_is_wrong_with_attributes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings of plan that hold on every node appear once each."""
    file = tmp_path / "v.yaml"
    file.write_text(
        """version: v1
devices:
  - name: npu
    resource: acme.dev/npu
    virtual: {count: 3}
    advertise: [dra]
    dra: {attributes: {long: "{id} {resource} {resource} {resource} {resource} {resource} {resource}"}}
"""
    )
    assert 0 == main(["validate", str(file)])
    err = capsys.readouterr().err
    assert 1 == err.count("the attribute long of npu/0 is left out: ")


def test_validate_as_json(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["validate", "--output", "json", bad])
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"] is False
    assert {"severity", "where", "file", "line", "column", "path", "message", "hint"} == answer["problems"][1].keys()
    assert ("error", bad, 2, 42, "devices[0].virtual.cont") == tuple(
        answer["problems"][1][key] for key in ("severity", "file", "line", "column", "path")
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"flags: {{migStrategy: single}}\ndevices: [{{{A30}, partitions: {{0: [1g.6gb]}}}}]",
            "with migStrategy single all devices must be partitioned or none",
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
def test_validate_proves_what_the_files_alone_prove(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    assert 2 == main(["validate", str(path)])
    assert words in capsys.readouterr().err


def test_config_shows_where_values_come_from(
    good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIG_STRATEGY", "mixed")
    assert 0 == main(["config", good, "--pass-device-specs"])
    text = capsys.readouterr().out
    assert "migStrategy: mixed  # env MIG_STRATEGY" in text
    assert "passDeviceSpecs: true  # flag --pass-device-specs" in text
    assert f"count: 2  # {good}:3:55" in text
    assert "deviceIDStrategy: uuid  # default" in text


def test_config_as_json(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["config", good, "-o", "json"])
    values = {each["path"]: each for each in json.loads(capsys.readouterr().out)["values"]}
    assert (2, f"{good}:3:55") == (
        values["devices[0].virtual.count"]["value"],
        values["devices[0].virtual.count"]["source"],
    )


def test_a_config_error_prints_every_problem(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["config", bad])
    assert 2 == len(capsys.readouterr().err.splitlines())


def test_schema_prints_the_published_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["schema"])
    assert (Path(__file__).parents[3] / "configs" / "vdev.schema.json").read_text() == capsys.readouterr().out


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
SETTINGS = ("pydantic_settings", "asyncio")  # which it imports


def test_offline_commands_import_no_part_of_the_running_plugin(good: str) -> None:
    """They start fast, and work without these packages, for example on macOS.

    One process does what each would do by itself, first what must import the least: what one may not import, none
    before it may.
    """
    commands = [
        ([*PLUGIN, *SETTINGS, "pydantic"], ["--help"]),
        ([*PLUGIN, *SETTINGS], ["schema"]),
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


def test_wrong_options_of_the_plugin_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["run", "--config-file", "f", "--log-level=loud", "--no-state=perhaps"])
    assert [
        "vdev: flag --no-state: 'perhaps' is not a boolean; expected true or false",
        "vdev: flag --log-level: 'loud' is not allowed; expected one of debug, info, warning, error",
    ] == capsys.readouterr().err.splitlines()


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m vdev schema | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 141)
    assert "" == done.stderr


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
def test_plan_shows_the_layout_that_a_label_chooses(tmp_path, capsys, label, resource, count):
    (tmp_path / "vdev.yaml").write_text(CHOSEN)
    given = [] if label is None else ["--label", f"nvidia.com/mig.config={label}"]
    assert 0 == main(["plan", str(tmp_path / "vdev.yaml"), "-o", "json", *given])
    plan = json.loads(capsys.readouterr().out)
    assert {resource: count} == {each["name"]: len(each["devices"]) for each in plan["resources"] if each["devices"]}
    states = {None: {}, "odd": {"nvidia.com/mig.config.state": "failed"}}
    assert states.get(label, {"nvidia.com/mig.config.state": "success"}) == plan["nodeLabels"]
    assert (label == "odd") == any(
        "would fail: there is no layout 'odd'" in each["message"] for each in plan["problems"]
    )


# --- where configurations come from ----------------------------------------------------------------------------------


def of_nodes(directory, **contents):
    """A directory like a mounted ConfigMap: files, and other entries that begin with a dot."""
    for name, text in contents.items():
        (directory / f"{name}.yaml").write_text(text)
    (directory / "..data").mkdir()
    (directory / "vdev.schema.json").write_text("{}")
    return str(directory)


def test_every_configuration_of_a_directory_is_validated(tmp_path, capsys):
    """Each file is checked alone, because each node takes one; a schema for editors is not a configuration."""
    directory = of_nodes(tmp_path, good=GOOD, bad=BAD, default=GOOD)
    assert 2 == main(["validate", directory])
    said = capsys.readouterr()
    assert [f"{directory}/default.yaml: valid", f"{directory}/good.yaml: valid"] == said.out.splitlines()
    assert all(f"{directory}/bad.yaml:" in line for line in said.err.splitlines())
    assert said.err


def test_every_key_of_a_configmap_is_validated(tmp_path, capsys):
    """Keys of a ConfigMap need no suffix. In other directories, a file without one is not a configuration."""
    directory = of_nodes(tmp_path, good=GOOD)
    (Path(directory) / "a100").write_text(BAD)
    assert 2 == main(["validate", directory])
    assert f"{directory}/a100:" in capsys.readouterr().err
    (Path(directory) / "..data").rmdir()
    assert 0 == main(["validate", directory])


def test_plan_takes_the_file_that_a_label_names(tmp_path, capsys):
    directory = of_nodes(tmp_path, good=GOOD, bad=BAD)
    asked = ["plan", directory, "--node-name", "bad", "--label", "vdev.dev/config=good"]
    assert 0 == main(asked)
    printed = capsys.readouterr().out
    assert printed.startswith(f"node bad, with {directory}/good.yaml: 1 resource with 2 devices\n")
    assert "example.com/a: 2 devices" in printed
    assert 0 == main([*asked, "--output", "json"])
    assert [f"{directory}/good.yaml"] == json.loads(capsys.readouterr().out)["files"]


@pytest.mark.parametrize("command", ["plan", "validate --node-name n"])
def test_a_directory_without_a_file_for_the_node_is_said(command, tmp_path, capsys):
    name, *node = command.split()
    assert 2 == main([name, of_nodes(tmp_path, a=GOOD), *(node or ["--node-name", "n"])])
    assert (
        "no file for node n: no label vdev.dev/config, no n.yaml, no default.yaml; there are a.yaml"
        in capsys.readouterr().err
    )


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


def test_a_plan_for_a_node_that_no_entry_is_for_says_so(tmp_path, capsys):
    """Sharing of devices that are for other nodes is not an error."""
    file = tmp_path / "vdev.yaml"
    file.write_text(OF_OTHERS)
    assert 0 == main(["plan", str(file), "--node", "vm"])
    assert [
        f"{file}:{place}: notice: entry {said}, this is vm; --node NAME plans for another node"
        for place, said in (
            ("2:5: devices[0]", "h100 is for nodes gpu-worker*"),
            ("3:5: devices[1]", "tty is for nodes edge-*, lab"),
        )
    ] == capsys.readouterr().err.splitlines()
    assert 0 == main(["plan", str(file), "--node", "vm", "--output", "json"])
    of_h100, of_tty = json.loads(capsys.readouterr().out)["problems"]
    assert (str(file), 2, 5, "devices[0]") == tuple(of_h100[key] for key in ("file", "line", "column", "path"))
    assert (3, 5, "devices[1]") == tuple(of_tty[key] for key in ("line", "column", "path"))
    assert 0 == main(["plan", str(file), "--node", "lab"])
    assert not capsys.readouterr().err
    assert 2 == main(["allocate", str(file), "--node", "vm", "--resource", "nvidia.com/gpu"])
    assert "entry h100 is for nodes gpu-worker*, this is vm" in capsys.readouterr().err


def test_sharing_of_what_no_node_has_is_warned_about_on_every_node(tmp_path, capsys):
    """A misspelled name is reported for every node."""
    file = tmp_path / "vdev.yaml"
    file.write_text(OF_OTHERS.replace("name: gpu,", "name: gqu,"))
    for node in ("vm", "lab", "gpu-worker1"):
        assert 0 == main(["plan", str(file), "--node", node])
        assert "warning: sharing names 'nvidia.com/gqu', which no entry has" in capsys.readouterr().err


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, good: str) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vdev.config.load", interrupted)
    assert 130 == main(["validate", good])
