"""End-to-end tests on a cluster that the command line names; without one they are skipped.

    pytest tests/e2e --kubeconfig ~/.kube/config --context kind-vdev --image vdev:dev \
        --kubelet-restart-command 'docker exec {node} systemctl restart kubelet'

Options that do not select the cluster also have environment variables, such as VDEV_E2E_IMAGE for --image. KUBECONFIG
does not select one (see `consent`).
"""

import asyncio
import os
import signal
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.e2e.cluster import ClusterDriver, Kubectl, Target
from tests.e2e.consent import refusal

_HELP = {
    "kubeconfig": "the cluster's kubeconfig; with --context, kubectl's own by default",
    "context": "the cluster's context; with --kubeconfig, its current one by default",
    "node": "the node to test on; a worker by default",
    "namespace": "the namespace to make for the tests; a random name by default",
    "image": "the agent's image, which the node has or can pull (default vdev:dev)",
    "pod-image": "the image of the tests' pods, with sh; the agent's by default",
    "kubelet-restart-command": "a shell command that restarts the node's kubelet; {node} is the node's name",
    "kubelet-stop-command": "a shell command that stops it, until the other one is run",
    "node-reboot-command": "a shell command that reboots the node, for an agent that is started before the kubelet",
    "running": "namespace/daemonset of an agent that runs already and shall be tested; its ConfigMap is put back",
}


def pytest_addoption(parser):
    """Add the options, which exist if this directory is named on the command line."""
    group = parser.getgroup("e2e", "a real cluster")
    for name, text in _HELP.items():
        group.addoption(f"--{name}", help=text)
    group.addoption("--yes-this-cluster", action="store_true", help="test it although it looks like no test cluster")


def _option(config, name):
    given = config.getoption(f"--{name.replace('_', '-')}", default=None)
    return given or ("" if name in ("kubeconfig", "context") else os.environ.get(f"VDEV_E2E_{name.upper()}", ""))


@pytest.fixture(scope="session")
def target(pytestconfig, runner):
    """The target, with the name of its context; skips if the command line names no cluster."""
    given = {each.name: _option(pytestconfig, each.name) for each in fields(Target)}
    if not given["kubeconfig"] and not given["context"]:
        pytest.skip("no cluster: give --kubeconfig or --context to pytest, or use `make e2e`")
    chosen = Target(**{name: value for name, value in given.items() if value})
    context = chosen.context or runner.run(Kubectl(chosen)("config", "current-context")).strip()
    confirmed = pytestconfig.getoption("--yes-this-cluster", default=False)
    if reason := refusal(context, named=bool(chosen.context), confirmed=confirmed):
        pytest.exit(reason, returncode=pytest.ExitCode.USAGE_ERROR)
    return replace(chosen, context=context)


@pytest.fixture(scope="session")
def runner():
    """One event loop for the cluster and all tests."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="session")
def deployed(target, runner):
    """The agent on the node, for all tests."""
    driver = ClusterDriver(target)
    # A run cleans up at SIGINT, which a shell ignores for processes in the background.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        runner.run(driver.__aenter__())
        yield driver
    except BaseException:
        sys.stderr.write(runner.run(driver.diagnostics()))
        raise
    finally:
        runner.run(driver.__aexit__(None, None, None))
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def cluster(deployed, runner, request):
    """The node, with an agent that advertises nothing, and without pods of tests. A failure adds diagnostics."""
    runner.run(deployed.reset())
    runner.run(deployed.begin())
    yield deployed
    report = getattr(request.node, "failed_report", None)
    if report is not None:
        text = runner.run(deployed.diagnostics())
        report.sections.append(("the cluster", text))
        if directory := os.environ.get("VDEV_E2E_ARTIFACTS"):
            Path(directory).mkdir(parents=True, exist_ok=True)
            (Path(directory) / f"{request.node.name.replace('/', '_')}.txt").write_text(text)
        sys.stderr.write(text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Record a failure for the fixtures."""
    report = yield
    if report.when == "call" and report.failed:
        item.failed_report = report
    return report


@pytest.fixture
def run(runner):
    """Run a coroutine of the cluster."""
    return runner.run
