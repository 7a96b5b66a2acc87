"""The driver itself, without a cluster: its kubectl is replaced by one that speaks with the embedded kubelet.

What is tested here is that the driver asks for the right things and waits for the right answers; what a real cluster
answers is for `test_cluster`.
"""

import asyncio
import contextlib
import importlib
import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest
import structlog
import yaml

from tests.e2e.cluster import ClusterDriver, Kubectl, KubectlError, Target
from tests.kit import quick
from tests.kit.agent_here import AgentHere
from vdev.control import command_socket
from vdev.errors import VdevError
from vdev.sim import Kubelet
from vdev.sim.objects.pods import Kind
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario_file import load

SCENARIOS = Path(__file__).parents[1] / "sim" / "scenarios"
NODE = "n1"
KUBERNETES = "1.36"


PREFIX = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?"
NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


def accepted(document):
    """Refuse an object as an API server would: by its schema, and by the form of names, keys and values in it."""
    if {"name"} <= document["metadata"].keys():
        with contextlib.suppress(ImportError):  # where the schemas are not installed, the form is checked alone
            importlib.import_module("kubernetes_validate").validate(document, KUBERNETES, strict=True)
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", document["metadata"]["name"])
    for path, mapping in mappings(document):
        for key, value in mapping.items():
            assert re.fullmatch(PREFIX + NAME, key), (path, key)
            assert path == "annotations" or re.fullmatch(f"({NAME})?", value), (path, key, value)


def mappings(document):
    """The labels, annotations and selectors anywhere in an object, with the key that they stand under."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if key in ("labels", "annotations", "matchLabels", "nodeSelector"):
            yield key, value
        elif isinstance(value, dict | list):
            yield from mappings(value)


def merged(document, patch):
    """A JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class EmbeddedKubectl(Kubectl):
    """kubectl of a cluster with one node, whose kubelet is the embedded one; the DaemonSet is one agent."""

    def __init__(self, root):
        super().__init__(Target())
        self.root, self.objects, self.agent, self.serial = root, {}, None, 0
        self.kubelet = Kubelet(root / "k", node_name=NODE, timings=quick.KUBELET)

    async def __call__(self, *arguments, stdin=None, patience=60):  # noqa: ARG002, C901, PLR0911, PLR0912, PLR0915  # a table of commands
        """The same commands, answered from here."""
        words = [each for each in arguments if not each.startswith("--")]
        if arguments[0] == "--namespace":
            words = words[1:]
        match words:
            case ["kustomize", _]:
                return await super().__call__(*arguments)
            case ["get", path] if path.endswith("/metrics"):
                lines = self.kubelet.metrics.registrations.items()
                name = "kubelet_device_plugin_registration_total"
                return "".join(f'{name}{{resource_name="{resource}"}} {count}\n' for resource, count in lines)
            case ["apply"]:
                for each in yaml.safe_load_all(stdin):
                    accepted(each)
                    self.objects[each["kind"].lower(), each["metadata"]["name"]] = each
                    if each["kind"] == "DaemonSet":
                        await self.start()
                return ""
            case ["get", "node", _]:
                return json.dumps(self.node())
            case ["get", "nodes"]:
                return json.dumps({"items": [self.node()]})
            case ["get", "pods"]:
                name = f"vdev-{self.serial}"
                return json.dumps({"items": [{"metadata": {"name": name}, "status": {}}] if self.agent else []})
            case ["get", "pod", name]:
                return self.pod(name)
            case ["get", kind, name] if "--ignore-not-found" in arguments and (kind, name) not in self.objects:
                return ""
            case ["get", kind, name]:
                return json.dumps(self.objects[kind, name])
            case ["patch", "configmap", name]:
                (patch,) = [each.partition("=")[2] for each in arguments if each.startswith("--patch=")]
                self.objects["configmap", name]["data"] |= json.loads(patch)["data"]
                self.publish()
                return ""
            case ["patch", "daemonset", name]:
                (patch,) = [each.partition("=")[2] for each in arguments if each.startswith("--patch=")]
                document = merged(self.objects["daemonset", name], json.loads(patch))
                accepted(document)
                self.objects["daemonset", name] = document
                selector = document["spec"]["template"]["spec"]["nodeSelector"]
                await (self.start() if {"kubernetes.io/hostname": NODE} == selector else self.stop())
                return ""
            case ["delete", "pod", name]:
                if name == f"vdev-{self.serial}":
                    await self.stop()
                    await self.start()
                elif name in {pod.name for pod in self.kubelet.pods()}:
                    await self.kubelet.delete_pod(name)
                return ""
            case ["create"]:
                document = yaml.safe_load(stdin)
                accepted(document)
                key = document["kind"].lower(), document["metadata"]["name"]
                if key in self.objects:
                    raise KubectlError(f"{'/'.join(key)} already exists")
                if document["kind"] == "Pod":
                    await self.kubelet.run_pod(document)
                else:
                    self.objects[key] = document
                return ""
            case ["get", "namespaces"]:
                (selector,) = [each.partition("=")[2] for each in arguments if each.startswith("--selector=")]
                named = [each for (kind, _), each in self.objects.items() if kind == "namespace"]
                return json.dumps({"items": [each for each in named if selector in each["metadata"].get("labels", {})]})
            case ["label", "namespace", name, label]:
                key, _, value = label.partition("=")
                document = merged(self.objects["namespace", name], {"metadata": {"labels": {key: value}}})
                accepted(document)
                self.objects["namespace", name] = document
                return ""
            case ["exec", _, *_] if "vdev status --output json || true" in arguments:
                try:
                    return json.dumps(await command_socket.ask(self.root, {"do": "status"}))
                except VdevError as error:
                    raise KubectlError(str(error)) from error
            case ["exec", _, "cat", _]:
                return self.objects["configmap", "vdev-config"]["data"]["default.yaml"]
            case ["exec", name, "env"]:
                (container,) = [each.partition("=")[2] for each in arguments if each.startswith("--container=")]
                env = self.kubelet.pod(name).container(container).edits.envs
                return "".join(f"{key}={value}\n" for key, value in env.items())
            case ["exec", name, *_]:
                await self.kubelet.restart_container(name)
                return ""
            case ["annotate", "pod", _, mark]:
                key, _, value = mark.partition("=")
                accepted({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"annotations": {key: value}}})
                return ""
            case ["rollout", *_]:
                return ""
            case ["delete", "namespace", name]:
                self.objects.pop(("namespace", name), None)
                await self.stop()
                return ""
        raise KubectlError(f"unknown here: {arguments}")

    def node(self):
        """The Node object."""
        shown = self.kubelet.node()
        numbers = {"capacity": shown.capacity, "allocatable": shown.allocatable}
        status = {key: {name: str(count) for name, count in value.items()} for key, value in numbers.items()}
        labels = {"kubernetes.io/hostname": NODE}
        conditions = [{"type": "Ready", "status": "True"}]
        return {"metadata": {"name": NODE, "labels": labels}, "status": status | {"conditions": conditions}}

    def pod(self, name):
        """A Pod object, or nothing."""
        found = [pod for pod in self.kubelet.pods() if pod.name == name]
        if not found:
            return ""
        (pod,) = found
        status = {"phase": pod.phase.value, "reason": pod.reason, "message": pod.message}
        status |= {"containerStatuses": [], "initContainerStatuses": []}
        for each in pod.containers:
            key = "containerStatuses" if each.kind is Kind.APP else "initContainerStatuses"
            seen = {"name": each.name, "restartCount": each.restarts, "state": {"running": {}} if each.running else {}}
            if each.allocated_resources_status:
                seen["allocatedResourcesStatus"] = each.allocated_resources_status
            status[key].append(seen)
        return json.dumps({"metadata": {"name": name}, "status": status})

    def publish(self):
        """Show the ConfigMap to the agent."""
        (self.root / "etc").mkdir(exist_ok=True)
        for name, text in self.objects["configmap", "vdev-config"]["data"].items():
            fresh = self.root / f"{name}.new"
            fresh.write_text(text)
            fresh.rename(self.root / "etc" / name)

    async def start(self):
        """Run the DaemonSet's pod, with this machine's paths."""
        if self.agent is not None:
            return
        self.publish()
        self.serial += 1
        command, *args = self.objects["daemonset", "vdev"]["spec"]["template"]["spec"]["containers"][0]["args"]
        assert "run" == command
        flags = [each.replace("/etc/vdev", str(self.root / "etc")) for each in args if "http" not in each]
        flags += ["--kubelet-dir", str(self.root / "k"), "--cdi-dir", str(self.root / "cdi")]
        flags += ["--run-dir", str(self.root), "--state-dir", str(self.root / "state"), "--node-name", NODE]
        self.agent = AgentHere(flags)
        await self.agent.start()

    async def stop(self):
        """End it as the kubelet would."""
        if self.agent is not None:
            agent, self.agent = self.agent, None
            await agent.stop()


@pytest.fixture
async def driver():
    """The driver on its embedded cluster."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl, which renders the overlay, is not here")
    root = Path(tempfile.mkdtemp(prefix="vd-"))
    made = ClusterDriver(Target(kubelet_restart_command="true"), pause=0.05)
    made.kubectl = EmbeddedKubectl(root)
    await made.kubectl.kubelet.start()
    try:
        with structlog.testing.capture_logs():
            async with made:
                await made.reset()
                await made.begin()
                yield made
    finally:
        await made.kubectl.stop()
        await made.kubectl.kubelet.stop()
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


@pytest.mark.long
@pytest.mark.parametrize("name", ["pod", "bad-edit", "plugin-restart", "removal-while-held", "sidecar"])
async def test_scenarios_by_kubectl(driver, name):
    """The scenarios come true through kubectl's documents as they do without."""
    skipped = await play(load(SCENARIOS / f"{name}.yaml"), driver, patience=60)
    assert [] == [each for each in skipped if "clock" not in each]


async def test_between_two_tests_the_node_is_empty(driver):
    """`reset` takes pods and devices away, so that tests do not see each other."""
    await play(load(SCENARIOS / "capacity.yaml"), driver, patience=60)
    await driver.reset()
    assert not any((await driver.node()).capacity.values())
    assert [] == (await driver.agent_status())["resources"]


async def test_diagnostics_never_fail(driver):
    """What cannot be had is said in the report, and the rest stands beside it."""
    text = await driver.diagnostics()
    assert f"$ kubectl get node {NODE}" in text
    assert "unknown here" in text
