"""The clusters that the tests use, and their cleanup: pytest runs with a fake kubectl."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.consent import refusal
from tests.kit import forkserver

ROOT = Path(__file__).parents[2]
KUBECTL = """\
#!/bin/sh
# Writes down what it is asked. It has a node and no namespaces; a rollout never ends.
echo "$*" >> "$STAND_IN/log"
case "$*" in
  *current-context*) echo "$STAND_IN_CONTEXT" ;;
  *"--raw /version"*) echo '{"major": "1", "minor": "35+"}' ;;
  *"--raw /apis"*) echo '{"groups": []}' ;;
  *"get node "*) echo '{"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}}' ;;
  *"get nodes"*) cat "$STAND_IN/nodes" ;;
  *"get namespaces"*) echo '{"items": []}' ;;
  *"create --filename"*) cat > /dev/null; [ -z "$STAND_IN_TAKEN" ] || { echo "already exists" >&2; exit 1; } ;;
  *"apply "*) cat > /dev/null ;;
  *"rollout status"*) [ -z "$STAND_IN_HANGS" ] || { echo > "$STAND_IN/rollout"; exec sleep 600; }; exit 1 ;;
  *"get daemonset"*) echo '{"spec": {"selector": {"matchLabels": {"a": "b"}}}}' ;;
  *"get pods"*) echo '{"items": []}' ;;
esac
"""
CHANGES = ("create", "apply", "patch", "delete", "label", "annotate", "exec", "rollout")
CONFIG = "apiVersion: v1\nkind: Config\n"


def node(name, *, ready):
    return {
        "metadata": {"name": name, "labels": {}},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


class Shell:
    """A shell with a fake `kubectl`."""

    def __init__(self, directory):
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(CONFIG)
        self.nodes(node("faked", ready=False), {"metadata": {"name": "new", "labels": {}}}, node("n1", ready=True))
        program = directory / "kubectl"
        program.write_text(KUBECTL)
        program.chmod(0o755)

    def nodes(self, *nodes):
        """Set the nodes of the cluster."""
        (self.directory / "nodes").write_text(json.dumps({"items": nodes}))

    def command(self, *options):
        """A command that runs two of the cluster's tests."""
        tests = ["tests/e2e/test_cluster.py", "-k", "test_sharing or test_mig_mixed"]
        command = [forkserver.python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        return [*command, *tests, *options]

    def environ(self, **variables):
        """The environment."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("VDEV_", "PYTEST_"))}
        path = f"{self.directory}:{os.environ['PATH']}"
        mine = {"PATH": path, "STAND_IN": str(self.directory), "KUBECONFIG": str(self.kubeconfig)}
        return inherited | mine | {"STAND_IN_CONTEXT": "prod-eu"} | variables

    def pytest(self, *options, **variables):
        """Run the command to its end."""
        return subprocess.run(
            self.command(*options),
            check=False,
            cwd=ROOT,
            env=self.environ(**variables),
            text=True,
            capture_output=True,
            timeout=100,
        )

    def asked(self):
        """The arguments of all calls of kubectl."""
        log = self.directory / "log"
        return log.read_text().splitlines() if log.exists() else []

    def changes(self):
        """The calls that change the cluster."""
        return [line for line in self.asked() if set(CHANGES) & set(line.split())]


@pytest.fixture
def shell(tmp_path):
    """A shell with its own directory."""
    return Shell(tmp_path)


def test_a_kubeconfig_in_the_environment_selects_no_cluster(shell):
    """The tests are skipped without a call of kubectl."""
    done = shell.pytest(VDEV_E2E_CONTEXT="kind-vdev", VDEV_E2E_KUBECONFIG=str(shell.kubeconfig))
    assert 0 == done.returncode, done.stdout
    assert "2 skipped" in done.stdout
    assert [] == shell.asked()


def test_a_cluster_that_may_be_production_is_refused(shell):
    """The name must be that of a test cluster, or be confirmed."""
    done = shell.pytest("--context", "prod-eu")
    assert 4 == done.returncode, done.stdout
    assert "--yes-this-cluster" in done.stdout
    assert [] == shell.changes()


def test_a_named_cluster_is_tested(shell):
    """Every command names the cluster, so a change of the current context has no effect."""
    shell.pytest("--context", "prod-eu", "--yes-this-cluster", "-x")
    assert shell.changes()
    assert all("--context=prod-eu" in line for line in shell.asked())
    assert any("delete namespace vdev-e2e-" in line for line in shell.changes())


def test_an_existing_namespace_is_left_alone(shell):
    """It is neither used nor deleted."""
    done = shell.pytest("--context", "kind-vdev", "--namespace", "theirs", "-x", STAND_IN_TAKEN="1")
    assert "already exists" in done.stdout
    assert not any("delete" in line or "apply" in line for line in shell.changes())


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_an_interrupted_run_cleans_up(shell):
    """A signal during the deployment ends the run, which deletes its namespace."""
    rollout = shell.directory / "rollout"
    os.mkfifo(rollout)
    process = await asyncio.create_subprocess_exec(
        *shell.command("--context", "kind-vdev"),
        cwd=ROOT,
        env=shell.environ(STAND_IN_HANGS="1"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    begun = asyncio.create_task(asyncio.to_thread(rollout.read_text))
    ended = asyncio.create_task(process.communicate())
    try:
        async with asyncio.timeout(150):
            await asyncio.wait({begun, ended}, return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                process.send_signal(signal.SIGTERM)
            out, _ = await ended
    finally:
        with contextlib.suppress(OSError):  # the reader has ended
            os.close(os.open(rollout, os.O_WRONLY | os.O_NONBLOCK))
    await begun
    deleted = any("delete namespace vdev-e2e-" in line for line in shell.changes())
    assert deleted, f"exit code {process.returncode}: {out.decode()}{shell.asked()}"


@pytest.mark.parametrize(
    ("context", "refused"),
    [
        ("kind-vdev", False),
        ("k3d-a", False),
        ("minikube", False),
        ("vdev", False),
        ("vdev-e2e", False),
        ("docker-desktop", False),
        ("", True),
        ("kind", True),
        ("default", True),
        ("kubernetes-admin@kubernetes", True),
        ("gke_acme_europe-west1_kind-a", True),
        ("arn:aws:eks:eu-west-1:1:cluster/minikube", True),
        ("vdev-prod", True),
        ("unkind-cluster", True),
    ],
)
def test_names_of_test_clusters(context, refused):
    """The whole name counts."""
    assert refused is bool(refusal(context, named=True, confirmed=False))
    assert "" == refusal(context, named=True, confirmed=True)
    assert refused is bool(refusal(context, named=False, confirmed=True))
