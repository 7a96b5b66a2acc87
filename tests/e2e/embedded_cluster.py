"""A cluster of one node for the cluster's driver: the embedded API server and kubelet, behind what kubectl is asked.

kubectl's words become requests for objects, which are refused as there. The one controller here is that of DaemonSets:
its pods are agents in this process, and a rolling update has two of them for a while.
"""

import asyncio
import contextlib
import itertools
import json
import os
import uuid

from tests.e2e.cluster import Kubectl, KubectlError, Target
from tests.kit import api_schemas, quick
from tests.kit.agent_here import AgentHere
from tests.kit.manifests import kustomized, loaded
from vdev.agent import command_socket
from vdev.errors import VdevError
from vdev.sim import Kubelet, LeapClock
from vdev.sim.api import discovery, http_requests, rules, writes
from vdev.sim.api.kinds import KINDS, ApiKind, Refused
from vdev.sim.api.selectors import selection
from vdev.sim.api.server import ApiServer
from vdev.sim.api.server_objects import ServerObjects
from vdev.sim.api.store import Objects
from vdev.sim.node_objects import NodeObjects

NODE = "n1"
_RBAC = "rbac.authorization.k8s.io"
OTHERS = (
    ApiKind("apps", "v1", "DaemonSet", "daemonsets", status=True, generation=True),
    ApiKind("", "v1", "ServiceAccount", "serviceaccounts"),
    ApiKind(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False),
    ApiKind(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
)
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_TEMPLATE = "vdev.test/template"  # the annotation of an agent's pod that says what it was made of


class _Rules(rules.Rules):
    """With the schemas of objects, and the labels by which a DaemonSet chooses its nodes."""

    def causes(self, kind, old, new):
        yield from super().causes(kind, old, new)
        yield from api_schemas.causes(new)
        template = (new.get("spec") or {}).get("template") or {}
        chosen = (template.get("spec") or {}).get("nodeSelector") or {}
        yield from rules.labels("spec.template.spec.nodeSelector", chosen)


class EmbeddedKubectl(Kubectl):
    """kubectl of that cluster. As an async context manager it runs it, below a directory. Without `proxy` the kubelet
    cannot be asked through the API server, for want of the permission.
    """

    def __init__(self, root, *, proxy=True):
        super().__init__(Target())
        self.root = root
        self.proxy = proxy
        self.objects = Objects(rules=_Rules())
        self.api = ApiServer(self.objects, kinds=(*KINDS, *OTHERS))
        self.clock = LeapClock()
        self.kubelet = Kubelet(
            root / "k",
            node_name=NODE,
            timings=quick.KUBELET,
            clock=self.clock,
            objects=ServerObjects(self.objects),
            cdi_dir=root / "cdi",
            strict=True,
        )
        self._agents = {}  # by the UID of their pods
        self._serial = itertools.count(1)
        self._tasks = []
        self._ends = False
        self._changed = asyncio.Event()

    async def __aenter__(self):
        await self.api.up()
        (self.root / "kubeconfig").write_text(self.api.kubeconfig())
        await self.kubelet.start()
        self.objects.listen(self._changed.set)
        nodes = NodeObjects(self.kubelet, self.objects)
        nodes.register()
        self._tasks = [
            asyncio.create_task(nodes.run(), name="node objects"),
            asyncio.create_task(self._control(), name="DaemonSet controller"),
        ]
        return self

    async def __aexit__(self, *_):
        """End the agents first, and none of them half way."""
        self._ends = True
        self._changed.set()
        nodes, controller = self._tasks
        await asyncio.wait([controller], timeout=30)
        for task in (nodes, controller):
            task.cancel()
        await asyncio.gather(nodes, controller, return_exceptions=True)
        if self.kubelet.alive:
            await self.kubelet.stop()
        await self.api.down()

    async def on_node(self, command):
        """What the target's commands do to the kubelet of a node."""
        verb, node = command.split()
        assert NODE == node
        if verb == "stop":
            await self.kubelet.crash()
        elif self.kubelet.alive:
            await self.kubelet.restart(wait=False)
        else:
            await self.kubelet.start(wait=False)

    def left(self):
        """What there still is besides the node and its namespaces."""
        kinds = [each for each in self.api.kinds.values() if each.kind not in ("Node", "Namespace", "Event")]
        return [each["metadata"]["name"] for kind in kinds for each in self.objects.all(kind)]

    async def pass_time(self, seconds):
        """Put the kubelet's clock forward instead of waiting."""
        self.clock.advance(seconds)
        await asyncio.sleep(0.05)

    # --- kubectl ------------------------------------------------------------------------------------------------------

    async def __call__(self, *arguments, stdin=None, patience=60):
        """The same commands, answered from here. Raises KubectlError."""
        for task in self._tasks:
            if task.done() and not self._ends:
                task.result()
        words, flags = _parsed(arguments)
        namespace = flags.get("namespace", "")
        try:
            return await self._do(words, flags, namespace, stdin, patience, arguments)
        except Refused as refused:
            if refused.status == 404 and "ignore-not-found" in flags:
                return ""
            raise KubectlError(f"kubectl {arguments}: {refused}") from refused

    async def _do(self, words, flags, namespace, stdin, patience, arguments):
        match words:
            case ["kustomize", directory]:
                return await asyncio.to_thread(kustomized, directory)
            case ["get", path] if "/proxy/" in path and not self.proxy:
                raise KubectlError('nodes "n1" is forbidden: User "tests" cannot get resource "nodes/proxy"')
            case ["get", path] if path.endswith("/proxy/metrics"):
                return self._metrics()
            case ["get", path] if "raw" in flags:
                return json.dumps(discovery.answer(path, self.api.kinds.values(), self.objects.rules.version))
            case ["get", kind]:
                kind = self._kind(kind)
                params = {"labelSelector": flags.get("selector", ""), "fieldSelector": flags.get("field-selector", "")}
                chosen = selection(kind, namespace if kind.namespaced else "", params)
                return json.dumps({"items": [each for each in self.objects.all(kind) if chosen(each)]})
            case ["get", kind, name]:
                return json.dumps(self.objects.get(self._kind(kind), self._home(kind, namespace), name))
            case ["create"] | ["apply"]:
                for document in loaded(stdin):
                    await self._write("create" if words == ["create"] else "patch", document, namespace)
                return ""
            case ["patch" | "label" | "annotate" as verb, kind, name, *pairs]:
                where = "labels" if verb == "label" else "annotations"
                patch = json.loads(flags["patch"]) if verb == "patch" else {"metadata": {where: _map(pairs)}}
                await self._request("patch", self._kind(kind), self._home(kind, namespace), name, patch, MERGE)
                return ""
            case ["rollout", "restart", kind_and_name]:
                name = kind_and_name.partition("/")[2]
                mark = {"kubectl.kubernetes.io/restartedAt": str(next(self._serial))}
                patch = {"spec": {"template": {"metadata": {"annotations": mark}}}}
                await self._request("patch", self._kind("daemonset"), namespace, name, patch, MERGE)
                return ""
            case ["rollout", "status", _]:
                await self._until(lambda: not self._due(), patience)
                return ""
            case ["delete", kind]:
                for each in json.loads(await self("get", kind, f"--selector={flags['selector']}"))["items"]:
                    await self._delete(kind, each["metadata"].get("namespace", ""), each["metadata"]["name"], flags, 60)
                return ""
            case ["delete", kind, name]:
                await self._delete(kind, self._home(kind, namespace), name, flags, patience)
                return ""
            case ["exec", *_]:
                return await self._exec(words[1], flags, namespace, arguments)
        raise KubectlError(f"unknown here: {arguments}")

    def _kind(self, word):
        """By its plural, its singular or its full name."""
        name = word.partition(".")[0].lower()
        return next(each for each in self.api.kinds.values() if name in (each.plural, each.kind.lower()))

    def _home(self, kind, namespace):
        return namespace if self._kind(kind).namespaced else ""

    async def _write(self, verb, document, namespace):
        kind = self._kind(document["kind"])
        name = document["metadata"]["name"]
        home = (document["metadata"].get("namespace") or namespace) if kind.namespaced else ""
        if not kind.namespaced:
            assert "namespace" not in document["metadata"], document
        await self._request(verb, kind, home, name, document, APPLY if verb == "patch" else "application/json")

    async def _request(self, verb, kind, namespace, name, body, content_type):
        params = {"fieldManager": "kubectl"} | ({"force": "true"} if content_type == APPLY else {})
        headers = {"content-type": content_type}
        request = http_requests.Request(verb, kind, namespace, name, "", params, headers, body)
        writes.write(self.objects, request)
        await self.objects.tell()

    async def _delete(self, kind, namespace, name, flags, patience):
        stored = self._kind(kind)
        uid = self.objects.get(stored, namespace, name)["metadata"]["uid"]
        self.objects.delete(stored, namespace, name, now="force" in flags)
        await self.objects.tell()
        if flags.get("wait", "true") == "true":
            left = lambda: [each for each in self.objects.all(stored, namespace) if each["metadata"]["uid"] == uid]
            await self._until(lambda: not left(), patience)

    async def _exec(self, pod, flags, namespace, arguments):
        if "vdev status --output json || true" in arguments:
            try:
                return json.dumps(await command_socket.ask(self.root, {"do": "status"}))
            except VdevError as error:
                raise KubectlError(str(error)) from error
        if "cat" in arguments:
            return self._files()["default.yaml"]
        if arguments[-1] == "env":
            env = self.kubelet.pod(pod, namespace=namespace).container(flags["container"]).edits.envs
            return "".join(f"{key}={value}\n" for key, value in env.items())
        await self.kubelet.restart_container(pod, namespace=namespace)
        return ""

    def _metrics(self):
        rows = [f"kubelet_running_pods {len(self.kubelet.pods())}"]
        rows += [
            f'kubelet_device_plugin_registration_total{{resource_name="{resource}"}} {count}'
            for resource, count in self.kubelet.metrics.registrations.items()
        ]
        directory = self.root / "k" / "plugins_registry"
        names = [name for name, there in self.kubelet.drivers().items() if any(each.connected for each in there)]
        sockets = [path for name in names for path in directory.glob(f"{name}-*reg.sock")]
        state = 'state="actual_state_of_world"'
        rows += [f'plugin_manager_total_plugins{{socket_path="{path}",{state}}} 1' for path in sorted(sockets)]
        return "".join(f"{row}\n" for row in rows)

    async def _until(self, condition, patience):
        try:
            async with asyncio.timeout(patience):
                while not condition():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise KubectlError(f"not within {patience} s") from None

    # --- the DaemonSet's controller -----------------------------------------------------------------------------------

    async def _control(self):
        while True:
            self._changed.clear()
            self._publish()
            while step := self._due():
                await step()
            if self._ends:
                return
            await self._changed.wait()

    def _files(self):
        """What is in the agent's ConfigMap."""
        kind = self._kind("configmap")
        found = [each for each in self.objects.all(kind) if each["metadata"]["name"] == "vdev-config"]
        return found[0]["data"] if found else {}

    def _publish(self):
        """Show the ConfigMap to the agent."""
        (self.root / "etc").mkdir(exist_ok=True)
        for name, text in self._files().items():
            file = self.root / "etc" / name
            if not file.exists() or file.read_text() != text:
                fresh = self.root / f"{name}.new"
                fresh.write_text(text)
                fresh.rename(file)

    def _due(self):
        """The next step that leads to the pods which the DaemonSet wants; None if they are there."""
        pods = {
            each["metadata"]["uid"]: each
            for each in self.objects.all(self._kind("pod"))
            if _TEMPLATE in (each["metadata"].get("annotations") or {})
        }
        if gone := [uid for uid in self._agents if uid not in pods]:
            return lambda: self._agents.pop(gone[0]).stop()
        daemonset = next(iter(self.objects.all(self._kind("daemonset"))), None)
        wanted = daemonset is not None and self._fits(daemonset) and not self._ends
        template = json.dumps(daemonset["spec"]["template"], sort_keys=True) if wanted else ""
        current = [uid for uid, each in pods.items() if each["metadata"]["annotations"][_TEMPLATE] == template]
        if wanted and not current:
            return lambda: self._create_agent(daemonset, template)
        others = [each for uid, each in pods.items() if uid not in current]
        return (lambda: self._delete_agent(others[0])) if others else None

    def _fits(self, daemonset):
        selector = daemonset["spec"]["template"]["spec"].get("nodeSelector") or {}
        labels = self.objects.get(self._kind("node"), "", NODE)["metadata"]["labels"]
        return all(labels.get(key) == value for key, value in selector.items() if key != "kubernetes.io/os")

    async def _create_agent(self, daemonset, template):
        namespace = daemonset["metadata"]["namespace"]
        labels = daemonset["spec"]["template"]["metadata"]["labels"]
        spec = {"nodeName": NODE, "containers": [{"name": "vdev", "image": "vdev:dev"}]}
        metadata = {"name": f"vdev-{next(self._serial)}", "labels": labels, "annotations": {_TEMPLATE: template}}
        document = {"metadata": metadata, "spec": spec}
        made = self.objects.create(self._kind("pod"), namespace, document, "kube-controller-manager")
        command, *args = daemonset["spec"]["template"]["spec"]["containers"][0]["args"]
        assert "run" == command
        flags = [each.replace("/etc/vdev", str(self.root / "etc")) for each in args if "http" not in each]
        flags += ["--kubelet-dir", str(self.root / "k"), "--cdi-dir", str(self.root / "cdi")]
        flags += ["--run-dir", str(self.root), "--state-dir", str(self.root / "state"), "--node-name", NODE]
        flags += ["--kubeconfig", str(self.root / "kubeconfig")]
        with _environ(POD_UID=str(uuid.UUID(made["metadata"]["uid"]))):
            agent = AgentHere(flags)
        self._agents[made["metadata"]["uid"]] = agent
        await agent.start()
        await self.objects.tell()

    async def _delete_agent(self, pod):
        """End it as its kubelet would: the pod goes when the agent has ended."""
        agent = self._agents.pop(pod["metadata"]["uid"], None)
        if agent is not None:
            await agent.stop()
        with contextlib.suppress(Refused):
            self.objects.delete(self._kind("pod"), pod["metadata"]["namespace"], pod["metadata"]["name"])
        await self.objects.tell()


def _parsed(arguments):
    """Words, and flags by name; those without a value are empty."""
    words, flags, rest = [], {}, list(arguments)
    while rest:
        each = rest.pop(0)
        if each == "--":
            break
        if each == "--namespace":
            flags["namespace"] = rest.pop(0)
        elif each.startswith("--"):
            name, _, value = each[2:].partition("=")
            flags[name] = value
        else:
            words.append(each)
    return words, flags


def _map(pairs):
    return dict(each.partition("=")[::2] for each in pairs)


@contextlib.contextmanager
def _environ(**values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
