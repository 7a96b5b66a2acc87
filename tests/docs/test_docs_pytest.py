"""The fixtures for pytest, with vdev installed: the tests on the page and further cases."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import forkserver, reader

ROOT = Path(__file__).parents[2]
SNIPPETS = [block.text for block in reader.blocks((ROOT / "docs" / "pytest.md").read_text(), "python")]
CASES = '''
import pathlib
import threading

import pytest

from vdev.sim import manifest

CONFIG = {"version": "v1", "devices": [{"name": "a", "resource": "acme.dev/a", "virtual": {"count": 1}}]}


@pytest.mark.vdev_config(CONFIG)
def test_mapping(kubelet, vdev_agent):
    assert kubelet.node().allocatable == {"acme.dev/a": 1}


@pytest.mark.vdev_config(pathlib.Path("mine.yaml"))
def test_file_is_left_alone(kubelet, vdev_agent):
    before = pathlib.Path("mine.yaml").read_text()
    vdev_agent.edit(CONFIG)
    kubelet.wait_until(lambda: kubelet.node().allocatable.get("acme.dev/a"))
    assert pathlib.Path("mine.yaml").read_text() == before


@pytest.mark.kubelet(node_name="other", compat="1.37")
def test_options(kubelet):
    assert kubelet.node_name == "other"


def test_killed_and_started(kubelet, vdev_agent):
    vdev_agent.kill()
    kubelet.wait_until(lambda: kubelet.node().allocatable == {"acme.dev/npu": 0})
    kubelet.advance(311)
    kubelet.wait_until(lambda: kubelet.node().capacity == {"acme.dev/npu": 0})
    vdev_agent.start()
    assert kubelet.node().allocatable == {"acme.dev/npu": 2}


LATE = {"rules": [{"name": "late", "rpc": "ListAndWatch", "delay": "300ms"}]}


@pytest.mark.vdev_config(CONFIG | {"faults": LATE})
def test_a_late_list_is_waited_for(kubelet, vdev_agent):
    """The kubelet knows the resource from before, and that nothing of it is there."""
    vdev_agent.restart()
    assert kubelet.node().allocatable == {"acme.dev/a": 1}


def test_a_condition_only_looks(kubelet):
    with pytest.raises(RuntimeError, match="a condition of wait_until cannot call"):
        kubelet.wait_until(lambda: kubelet.run_pod(manifest("p")))


@pytest.mark.asyncio
async def test_own_loop_goes_on(kubelet, vdev_agent):
    """Though this loop has gRPC's channels as well."""
    import grpc.aio

    from vdev.pb import podresources_v1_pb2 as v1
    from vdev.pb import podresources_v1_pb2_grpc as v1_grpc

    await kubelet.run_pod(manifest("one", {"acme.dev/npu": 1}))
    async with grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as channel:
        answer = await v1_grpc.PodResourcesListerStub(channel).List(v1.ListPodResourcesRequest())
    assert ["one"] == [pod.name for pod in answer.pod_resources]
'''
FAILING = """
import pytest

from vdev.sim import manifest


def test_fails(kubelet, vdev_agent):
    kubelet.run_pod(manifest("one", {"acme.dev/npu": 1}))
    assert False


@pytest.mark.vdev_config("version: v1\\ndevices: [{name: a, resource: a.b/c, virtual: {cuont: 1}}]")
def test_bad_configuration(vdev_agent):
    pass


def test_bad_edit(kubelet, vdev_agent, vdev_config):
    vdev_agent.edit(vdev_config.replace("count", "wrong"))
    kubelet.wait_until(lambda: kubelet.node().allocatable["acme.dev/npu"] == 3, timeout=1)


def test_no_pod(kubelet):
    kubelet.run_pod({"kind": "Pod"})


def wrong(kubelet):
    from vdev.sim.lint import Finding, Severity

    kubelet.journal.find([Finding("empty-id", Severity.ERROR, "a.b/c", "a device has an empty id")])


def test_finding(kubelet):
    wrong(kubelet)


@pytest.mark.kubelet(allow=["empty-id"])
def test_allowed(kubelet):
    wrong(kubelet)
"""


@pytest.fixture
def run(tmp_path):
    """Run pytest in a directory in which vdev is installed with its entry point."""
    installed = tmp_path / "site" / "vdev-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: vdev\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(entry_points())
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "mine.yaml").write_text("version: v1\ndevices: []\n")
    shutil.copy(ROOT / "tests/kit/foreign_plugin.py", directory / "my_plugin.py")

    def pytest_run(*arguments, **files):
        for name, text in files.items():
            (directory / f"{name}.py").write_text(text)
        environ = os.environ | {"PYTHONPATH": f"{installed.parent}:{ROOT}", "PYTEST_ADDOPTS": ""}
        command = [forkserver.python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        command += ["-W", "error", "-o", "asyncio_default_fixture_loop_scope=function", "--strict-markers"]
        command += ["--rootdir", directory, *arguments]
        return subprocess.run(
            command, cwd=directory, env=environ, capture_output=True, text=True, timeout=110, check=False
        )

    return pytest_run


def entry_points():
    """The wheel's entry_points.txt."""
    import tomllib

    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {module}\n" for name, module in entries.items())
        for group, entries in groups.items()
    )


@pytest.mark.long
def test_the_examples_pass(run):
    """Sync and async tests, with vdev and with another plugin."""
    done = run(**{f"test_{number}": text for number, text in enumerate(SNIPPETS)})
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "5 passed" in done.stdout


@pytest.mark.long
def test_the_fixtures_work(run):
    """Every form of configuration, options, a killed agent, and a test with its own gRPC loop."""
    done = run(test_cases=CASES)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "7 passed" in done.stdout
    assert "" == done.stderr


@pytest.mark.long
def test_output_of_failures(run):
    """It has the kubelet's journal, the agent's log, errors of the configuration, and findings of the test.

    It begins with vdev's own error, without the internals of the fixtures.
    """
    done = run(test_failing=FAILING)
    assert 1 == done.returncode, done.stdout + done.stderr
    assert "3 failed, 2 passed, 2 errors" in done.stdout
    for text in (
        "what the kubelet saw",
        "pod      default/one Running",
        "vdev run",
        "unknown key 'cuont'",
        "the kubelet found:\nerror: empty-id: a.b/c: a device has an empty id",
    ):
        assert text in done.stdout, done.stdout
    shown = dict(
        re.findall(
            r"^_+ (?:ERROR at setup of )?(test_\w+) _+\n(.*?)(?=^[_=]+ |\Z)", done.stdout, re.MULTILINE | re.DOTALL
        )
    )
    for internal in ("no running event loop", "During handling", "concurrent", "testing.py", "pod_manifest.py:"):
        assert internal not in done.stdout, done.stdout
    assert re.match(r"/.*vdev.yaml:2:.*unknown key 'cuont'", shown["test_bad_configuration"]), done.stdout
    assert "\nE       vdev.sim.objects.pod_manifest.ManifestError: expected a v1 Pod, found" in shown["test_no_pod"]
    error, edited, log = (
        shown["test_bad_edit"].index(text)
        for text in (
            "\nE       TimeoutError: waited 1 s for",
            "\nconfiguration refused; the last good one stays: /",
            "- what",
        )
    )
    assert error < edited < log, shown["test_bad_edit"]


def test_the_plugin_imports_only_itself():
    """Pytest loads the plugin in every project with vdev installed."""
    program = "import sys, pytest; before = {*sys.modules}; import vdev.pytest_plugin; print(*{*sys.modules} - before)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert {"vdev", "vdev.pytest_plugin"} == set(done.stdout.split())


def test_the_markers_are_known(run):
    """`pytest --markers` describes both."""
    done = run("--markers")
    assert "@pytest.mark.kubelet(**options): options of vdev.sim.Kubelet" in done.stdout
    assert "@pytest.mark.vdev_config(configuration): the configuration of vdev_agent" in done.stdout
