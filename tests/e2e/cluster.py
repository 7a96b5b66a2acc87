"""A real node for scenarios, with the interface of `EmbeddedNode`, controlled by kubectl.

It creates its namespace, the agent's objects in it unless an agent runs already, and the tests' pods, and deletes them
at the end. Its capabilities are those of a cluster, so it cannot advance the clock or create device nodes, for example.
"""

import asyncio
import contextlib
import copy
import json
import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import yaml

from tests.e2e import claims, leftovers
from tests.kit.manifests import loaded
from tests.kit.vdev_node import reasons_in
from vdev.model.names import visible_devices_env
from vdev.sim import Capacity
from vdev.sim.objects import pod_manifest
from vdev.sim.objects.pods import ContainerSpec, ContainerStatus, Kind, Phase, PodSpec, PodStatus
from vdev.sim.scenarios.scenario import ObjectName, Scenario, ScenarioError

DEPLOY = Path(__file__).parents[2] / "deploy"
EMPTY = "version: v1\ndevices: []\n"
PATIENCE = 180.0  # seconds; an edit of a ConfigMap takes up to 90 s, and an image may have to be pulled
_TIMEOUT = 60.0  # seconds for one kubectl
_PAUSE = 0.5  # seconds between two polls
_SLEEP = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]  # ends at SIGTERM, unlike a bare sleep
_REGISTRATIONS = "kubelet_device_plugin_registration_total"
_NEEDS = {  # by the step of a scenario
    "hook": "hook",
    "advance_clock": "clock",
    "roll_plugin": "roll",
    "kill_plugin": "kill",
    "reboot_plugin_first": "reboot",
    "reboot_kubelet_first": "reboot-kubelet-first",
    **dict.fromkeys(("force_delete_pod", "create_object", "delete_object"), "dra"),
    **dict.fromkeys(("restart_kubelet", "crash_kubelet", "start_kubelet"), "kubelet"),
    **dict.fromkeys(("restart_plugin", "stop_plugin", "start_plugin"), "plugin"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster, the node and the images. `running` is `namespace/daemonset` of a running agent, or empty."""

    kubeconfig: str = ""
    context: str = ""
    node: str = ""
    namespace: str = ""
    image: str = "vdev:dev"
    pod_image: str = ""
    kubelet_restart_command: str = ""
    kubelet_stop_command: str = ""
    node_reboot_command: str = ""
    running: str = ""


class KubectlError(Exception):
    """A failed call of kubectl."""


class Kubectl:
    """Runs kubectl for one cluster."""

    def __init__(self, target: Target) -> None:
        self._command = ["kubectl"]
        self._command += [f"--kubeconfig={target.kubeconfig}"] if target.kubeconfig else []
        self._command += [f"--context={target.context}"] if target.context else []

    async def __call__(self, *arguments: str, stdin: str | None = None, patience: float = _TIMEOUT) -> str:
        """Run a command. Returns its output. Raises KubectlError."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(patience):
                out, error = await process.communicate(stdin.encode() if stdin is not None else None)
        except TimeoutError:
            raise KubectlError(f"kubectl {shlex.join(arguments)}: no answer within {patience:g} s") from None
        finally:
            if process.returncode is None:  # also when the tests are interrupted
                process.kill()
                await process.wait()
        if process.returncode:
            raise KubectlError(f"kubectl {shlex.join(arguments)}: {error.decode().strip()}")
        return out.decode()

    async def json(self, *arguments: str) -> Any:
        """A document, by `-o json`."""
        return json.loads(await self(*arguments, "--output=json"))

    async def maybe(self, *arguments: str) -> Any:
        """A document; None if there is no such object."""
        text = await self(*arguments, "--output=json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    async def create(self, *arguments: Any) -> None:
        """Create an object, which is the last argument. It must not exist."""
        *flags, document = arguments
        await self(*flags, "create", "--filename=-", stdin=yaml.safe_dump(document))

    async def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects."""
        text = yaml.safe_dump_all(objects)
        await self("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=text)


class ClusterDriver:
    """One node of a cluster. As an async context manager it deploys the agent, and deletes everything at the end."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.kubectl = Kubectl(target)
        self.namespace = target.namespace or f"vdev-e2e-{secrets.token_hex(3)}"
        self.capabilities = frozenset({"plugin", "roll", "clock"})
        self.sees_edits, self.sees_slices = False, True
        if target.kubelet_restart_command:
            self.capabilities |= {"kubelet"}
        if target.node_reboot_command:
            self.capabilities |= {"reboot"}
        self.node_name = self.hostname = target.node
        self._specs: dict[str, PodSpec] = {}
        self._baseline: dict[str, int] = {}
        self._serial = 0
        self._made = False  # whether the namespace was created
        self._before: dict[str, str] | None = None  # the data of a running agent's ConfigMap
        self.agent_namespace, self.daemonset = self.namespace, "vdev"
        self.claims = claims.Claims(
            lambda: self.kubectl,
            namespace=self.namespace,
            node=lambda: self.node_name,
            label=leftovers.RUN,
        )
        self.no_claims = ""  # why claims cannot be used; empty if they can
        self.no_metrics = ""  # why the kubelet's metrics cannot be read; empty if they can

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.node_name = self.node_name or await self._some_node()
        node = await self.kubectl.json("get", "node", self.node_name)
        self.hostname = node["metadata"]["labels"]["kubernetes.io/hostname"]
        await self._look_for_metrics()
        await self._look_for_claims()
        await leftovers.sweep(self.kubectl, now=time.time(), everywhere=self._everywhere)
        namespace = leftovers.namespace(self.namespace, now=time.time())
        await self.kubectl("create", "--filename=-", stdin=yaml.safe_dump(namespace))  # fails if it exists
        self._made = True
        if self.target.running:
            self.agent_namespace, _, self.daemonset = self.target.running.partition("/")
            name = await self._configmap()
            self._before = (await self.kubectl.json(*self._in_agent("get", "configmap", name)))["data"]
            note = leftovers.note(self.namespace, self.target.running, configmap=name, data=self._before)
            await self.kubectl.apply(note)
        else:
            await self.kubectl.apply(*await self._objects())
        await self._rolled_out()
        return self

    async def _look_for_metrics(self) -> None:
        """Check whether the kubelet's metrics, which count registrations, can be read."""
        try:
            await self._read_metrics()
        except KubectlError as error:
            self.no_metrics = f"the kubelet's metrics, which count registrations, cannot be read: {error}"

    async def _look_for_claims(self) -> None:
        """Check whether the cluster supports claims, and whether a running agent has the directories for them."""
        version = json.loads(await self.kubectl("get", "--raw", "/version"))
        self.no_claims = claims.missing(version, json.loads(await self.kubectl("get", "--raw", "/apis")))
        if self.target.running and not self.no_claims:
            namespace, _, name = self.target.running.partition("/")
            found = await self.kubectl.json("--namespace", namespace, "get", "daemonset", name)
            if "plugins_registry" not in json.dumps(found["spec"]["template"]["spec"]):
                self.no_claims = "the agent that runs has not the component dra"
        if not self.no_claims:
            self.capabilities |= {"dra"}

    async def __aexit__(self, *_: object) -> None:
        """Delete the created objects. The next run deletes those that cannot be deleted now."""
        if not self._made:
            return
        if await self.agent_status() is not None:
            with contextlib.suppress(KubectlError, ScenarioError):
                await self.reset(patience=_TIMEOUT)
        if self._before is not None:
            await self._select("")
            await self._publish(self._before)
        await leftovers.sweep_run(self.kubectl, self.namespace, self._everywhere)
        await self.kubectl("delete", "namespace", self.namespace, "--wait=true", patience=PATIENCE)

    @property
    def _everywhere(self) -> tuple[str, ...]:
        """The cluster-scoped kinds of which the tests may create objects."""
        return () if self.no_claims else leftovers.EVERYWHERE

    async def _some_node(self) -> str:
        """A ready worker, or the only node."""
        found = (await self.kubectl.json("get", "nodes"))["items"]
        nodes = [each for each in found if _is_ready(each)]
        if not nodes:
            raise KubectlError(f"none of {len(found)} nodes is ready, to be tested: name one with --node")
        workers = [each for each in nodes if "node-role.kubernetes.io/control-plane" not in each["metadata"]["labels"]]
        return str((workers or nodes)[0]["metadata"]["name"])

    async def _objects(self) -> list[dict[str, Any]]:
        """The objects to deploy, for this node and in this namespace. Configurations set the strategy."""
        directory = DEPLOY / "overlays" / "cdi" if self.no_claims else Path(__file__).parent / "with-claims"
        rendered = loaded(await self.kubectl("kustomize", str(directory)))
        return [placed(each, self) for each in rendered if each["kind"] != "Namespace"]

    async def reset(self, *, patience: float = PATIENCE) -> None:
        """Delete all pods of tests and advertise nothing. Returns when the node shows no devices of the agent."""
        await self.kubectl("label", "namespace", self.namespace, leftovers.lease(time.time()), "--overwrite")
        for name in tuple(self._specs):
            await self._delete(name, "--now", waits=True)
        await self.claims.reset()
        before = await self.agent_status()
        ours = [each["name"] for each in before["resources"]] if before else []
        await self.edit_configuration(EMPTY)

        async def shows_nothing() -> bool:
            status, node = await self.agent_status(), await self.node()
            rests = [each["name"] for each in (before or {}).get("dra", ())]
            left = [each for each in rests if await self.claims.slices(each) is not None]
            shown = any(node.capacity.get(each) for each in ours)
            return bool(status) and status["resources"] == [] and not shown and not left

        await self.until(shows_nothing, "no device of ours on the node", patience=patience)

    def unplayable(self, scenario: Scenario) -> str:
        """Why a scenario cannot be played here; empty if it can."""
        stops = any(step.name in ("crash_kubelet", "start_kubelet") for step in scenario.steps)
        if stops and not self.target.kubelet_stop_command:
            return "no --kubelet-stop-command"
        if "dra" in scenario.requires and self.no_claims:
            return self.no_claims
        if missing := scenario.requires - self.capabilities:
            return f"needs {', '.join(sorted(missing))}"
        counts = any(each.registrations for each in scenario.expectations)
        return self.no_metrics if counts else ""

    def playable(self, scenario: Scenario) -> Scenario:
        """Return the scenario without the steps that this node cannot do."""
        steps = [each for each in scenario.steps if _NEEDS.get(each.name, "") in {"", *self.capabilities}]
        return scenario.model_copy(update={"steps": steps})

    async def begin(self) -> None:
        """Count registrations from here."""
        self._baseline = await self._registrations()

    # --- the scenarios' driver ----------------------------------------------------------------------------------------

    async def edit_configuration(self, text: str) -> None:
        """Replace the configuration. Returns when the agent has read it."""
        key = "default.yaml" if self._before is None else next(iter(self._before))
        before = await self.agent_status()
        await self._publish({key: text})
        if before is None:
            return
        seen = before["config"]["applied"] + before["config"]["failed"]

        async def read() -> bool:
            status = await self.agent_status()
            if status is None:
                return False
            readings = status["config"]["applied"] + status["config"]["failed"]
            return bool(readings != seen or await self._mounted(key) == text)

        await self.until(read, "the agent reads the configuration")

    async def restart_kubelet(self) -> None:
        await self._restart_kubelet(self.target.kubelet_restart_command)

    async def crash_kubelet(self) -> None:
        await _shell(self.target.kubelet_stop_command.format(node=self.node_name))

    async def start_kubelet(self) -> None:
        await self._restart_kubelet(self.target.kubelet_restart_command)

    async def reboot_plugin_first(self) -> None:
        await self._restart_kubelet(self.target.node_reboot_command)
        await self._rolled_out()

    async def restart_plugin(self) -> None:
        await self.kubectl(*self._in_agent("delete", "pod", await self.agent_pod(), "--wait=true"))
        await self._rolled_out()

    async def stop_plugin(self) -> None:
        await self._select("stopped")
        await self.until(self._no_agent, "the agent's end")

    async def start_plugin(self) -> None:
        await self._select("")
        await self._rolled_out()

    async def roll_plugin(self) -> None:
        """Replace the agent by a rolling update, as a new image would."""
        await self.kubectl(*self._in_agent("rollout", "restart", f"daemonset/{self.daemonset}"))
        await self._rolled_out()

    async def advance_clock(self, seconds: float) -> None:
        """Wait: a real kubelet has its own time."""
        await asyncio.sleep(seconds)

    async def create_pod(self, manifest: Mapping[str, Any]) -> None:
        """Create a pod on the node. Returns when the kubelet, or the scheduler for one with claims, has decided."""
        name = manifest["metadata"]["name"]
        document = filled(manifest, node=self.node_name, image=self.target.pod_image or self.target.image)
        self._specs[name] = spec = pod_manifest.parse(document)
        scheduled = self.claims.scheduled(spec)
        if scheduled:
            document = unbound(document, self.hostname)
        await self.kubectl.create(*self._here(), document)

        async def decided() -> bool:
            found = await self.kubectl.maybe(*self._here("get", "pod", name))
            status = (found or {}).get("status") or {}
            if scheduled and any(each["type"] == "PodScheduled" for each in status.get("conditions") or ()):
                return True
            return bool(status) and status.get("phase", "Pending") != "Pending"

        await self.until(decided, f"a decision on pod {name}")

    async def delete_pod(self, name: str) -> None:
        """Delete a pod. Returns when it is gone, or at once for one with claims, which may stay until unprepare."""
        spec = self._specs.get(name)
        await self._delete(name, "--now", waits=not (spec and self.claims.scheduled(spec)))

    async def force_delete_pod(self, name: str) -> None:
        """Delete a pod from the API server without waiting for its kubelet. Returns when it is gone."""
        await self._delete(name, "--force", "--grace-period=0", waits=True)

    async def _delete(self, name: str, *how: str, waits: bool) -> None:
        wait = f"--wait={str(waits).lower()}"
        await self.kubectl(*self._here("delete", "pod", name, "--ignore-not-found", *how, wait))
        if waits:
            self._specs.pop(name, None)

    async def create_object(self, document: Mapping[str, Any]) -> None:
        """Create a claim, a template or a class."""
        await self.claims.create(document)

    async def delete_object(self, name: ObjectName) -> None:
        """Delete such an object. Returns when it is gone."""
        await self.claims.delete(name.kind, name.name)

    async def restart_container(self, pod: str) -> None:
        """End the first app container. The kubelet restarts it."""
        first = next(each.name for each in self._specs[pod].containers if each.kind is Kind.APP)

        async def ended() -> bool:
            try:
                await self.kubectl(*self._here("exec", pod, f"--container={first}", "--", "sh", "-c", "kill -TERM 1"))
            except KubectlError as error:
                if "pod does not exist" not in str(error):  # the kubelet has just started and does not know it yet
                    raise
                return False
            return True

        await self.until(ended, f"the kubelet that knows pod {pod}")

    async def node(self) -> Capacity:
        """The extended resources in the node's status."""
        return capacity(await self.kubectl.json("get", "node", self.node_name))

    async def pod(self, name: str) -> PodStatus | None:
        """The status of a pod; None if there is no such pod."""
        document = await self.kubectl.maybe(*self._here("get", "pod", name))
        if document is None:
            return None
        found = pod_status(self._specs.get(name) or pod_manifest.parse(document), document)
        seen = []
        for each in found.containers:
            container = await self._with_devices(found, each)
            seen.append(replace(container, claims=await self.claims.of_pod(document, each)))
        return replace(found, containers=tuple(seen))

    async def slices(self, driver: str) -> Sequence[str] | None:
        """The devices that a driver publishes for the node."""
        return await self.claims.slices(driver)

    async def claim(self, name: str) -> Sequence[str] | None:
        """The devices allocated to a claim, None if there is no such claim."""
        return await self.claims.claim(name)

    async def drivers(self, driver: str) -> int | None:
        """How many instances of a driver the kubelet has registered; None without its metrics."""
        return None if self.no_metrics else await self.claims.drivers(driver, self._metrics)

    async def events(self, pod: str) -> Sequence[str]:
        """The Warning events on a pod."""
        return await self.claims.events(pod)

    async def registrations(self, resource: str) -> int | None:
        """The kubelet's count since `begin`; None without its metrics."""
        if self.no_metrics:
            return None
        now = (await self._registrations()).get(resource, 0)
        before = self._baseline.get(resource, 0)
        return now - before if now >= before else now

    async def reasons(self) -> dict[tuple[str, str], str]:
        """The reasons of the agent's Unhealthy devices."""
        status = await self.agent_status()
        return {} if status is None else reasons_in(status)

    async def errors(self, _also: frozenset[str] = frozenset()) -> list[str]:
        """A real kubelet has no findings."""
        return []

    async def causes(self) -> list[str]:
        """A real kubelet keeps no journal."""
        return []

    async def change(self) -> None:
        """Return soon."""
        await asyncio.sleep(self.pause)

    async def check(self) -> None:
        """Raise ScenarioError if the agent's container was restarted."""
        for document in await self._agent_pods():
            for status in document["status"].get("containerStatuses", []):
                ended = status.get("lastState", {}).get("terminated")
                if ended and ended.get("exitCode"):
                    raise ScenarioError(f"the agent's container ended with exit code {ended['exitCode']}")

    # --- more, for tests ----------------------------------------------------------------------------------------------

    async def until(self, condition: Any, what: str, *, patience: float = PATIENCE) -> None:
        """Wait for an async condition. Raises ScenarioError."""
        try:
            async with asyncio.timeout(patience):
                while not await condition():  # polled, because there are no events
                    await asyncio.sleep(_PAUSE)
        except TimeoutError:
            raise ScenarioError(f"not within {patience:g} s: {what}") from None

    async def inside(self, pod: str, command: str) -> str:
        """The output of a shell command in a pod."""
        return await self.kubectl(*self._here("exec", pod, "--", "sh", "-c", command))

    async def _with_devices(self, pod: PodStatus, container: ContainerStatus) -> ContainerStatus:
        """The container with its devices, read inside it if the kubelet does not report them.

        A real one never does for init containers and sidecars. The variable is that of strategy `envvar` by default.
        """
        spec = next(each for each in pod.spec.containers if each.name == container.name)
        wanted = [resource for resource in spec.requests if "/" in resource]
        if container.devices or not container.running or not wanted or self.claims.scheduled(pod.spec):
            return container
        try:
            text = await self.kubectl(*self._here("exec", pod.name, f"--container={container.name}", "--", "env"))
        except KubectlError:  # it has ended
            return container
        env = dict(line.partition("=")[::2] for line in text.splitlines())
        lists = {resource: env.get(visible_devices_env(resource), "") for resource in wanted}
        devices = {resource: tuple(sorted(ids.split(","))) for resource, ids in lists.items() if ids}
        return replace(container, devices=devices)

    async def agent_status(self) -> Any:
        """The output of `vdev status` on this node; None if it does not answer."""
        try:
            name = await self.agent_pod()
            command = "vdev status --output json || true"  # exits with 1 while it is not ready
            return json.loads(await self.kubectl(*self._in_agent("exec", name, "--", "sh", "-c", command)))
        except (KubectlError, ScenarioError, ValueError):
            return None

    async def agent_pod(self) -> str:
        """The name of the agent's pod on this node. Raises ScenarioError."""
        found = [each for each in await self._agent_pods() if "deletionTimestamp" not in each["metadata"]]
        if not found:
            raise ScenarioError(f"no agent on {self.node_name}")
        return str(found[0]["metadata"]["name"])

    async def diagnostics(self) -> str:
        """The state of node, pods and agent, for a failure."""
        wanted = [
            ("get", "node", self.node_name, "--output=yaml"),
            self._here("get", "pods", "--output=yaml"),
            self._here("get", "events", "--sort-by=.lastTimestamp"),
            self._in_agent("get", "configmap", "--output=yaml"),
            self._in_agent("logs", f"daemonset/{self.daemonset}", "--tail=200", "--prefix"),
            self._in_agent("logs", f"daemonset/{self.daemonset}", "--tail=50", "--prefix", "--previous"),
        ]
        parts = []
        for arguments in wanted:
            try:
                text = await self.kubectl(*arguments)
            except KubectlError as error:
                text = str(error)
            parts.append(f"$ kubectl {shlex.join(arguments)}\n{text}")
        return "\n".join(parts)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _here(self, *arguments: str) -> tuple[str, ...]:
        return ("--namespace", self.namespace, *arguments)

    def _in_agent(self, *arguments: str) -> tuple[str, ...]:
        return ("--namespace", self.agent_namespace, *arguments)

    async def _configmap(self) -> str:
        """The name of the ConfigMap that the agent's files come from."""
        daemonset = await self.kubectl.json(*self._in_agent("get", "daemonset", self.daemonset))
        volumes = daemonset["spec"]["template"]["spec"]["volumes"]
        return str(next(each["configMap"]["name"] for each in volumes if "configMap" in each))

    async def _publish(self, data: Mapping[str, str]) -> None:
        """Write the ConfigMap, and annotate the agent's pod, so that the kubelet updates its volumes at once."""
        name = await self._configmap()
        patch = json.dumps({"data": data})
        await self.kubectl(*self._in_agent("patch", "configmap", name, "--type=merge", f"--patch={patch}"))
        self._serial += 1
        with contextlib.suppress(ScenarioError):
            mark = f"vdev.dev/e2e={self._serial}"
            await self.kubectl(*self._in_agent("annotate", "pod", await self.agent_pod(), mark, "--overwrite"))

    async def _mounted(self, key: str) -> str:
        name = await self.agent_pod()
        with contextlib.suppress(KubectlError):
            return await self.kubectl(*self._in_agent("exec", name, "--", "cat", f"/etc/vdev/{key}"))
        return ""

    async def _agent_pods(self) -> list[dict[str, Any]]:
        daemonset = await self.kubectl.json(*self._in_agent("get", "daemonset", self.daemonset))
        labels = ",".join(f"{k}={v}" for k, v in daemonset["spec"]["selector"]["matchLabels"].items())
        here = f"--field-selector=spec.nodeName={self.node_name}"
        return list((await self.kubectl.json(*self._in_agent("get", "pods", f"--selector={labels}", here)))["items"])

    async def _no_agent(self) -> bool:
        return not await self._agent_pods()

    async def _select(self, value: str) -> None:
        """Let the DaemonSet run only on nodes with this value of a label; with an empty value, where it ran before."""
        patch = leftovers.selector_patch(value)
        await self.kubectl(*self._in_agent("patch", "daemonset", self.daemonset, "--type=merge", f"--patch={patch}"))

    async def _rolled_out(self) -> None:
        """Wait until an agent of the newest template answers on the node."""
        limit = f"--timeout={PATIENCE:g}s"
        await self.kubectl(
            *self._in_agent("rollout", "status", f"daemonset/{self.daemonset}", limit), patience=PATIENCE + _TIMEOUT
        )

        async def answers() -> bool:
            return await self.agent_status() is not None

        await self.until(answers, "an agent that answers")

    async def _restart_kubelet(self, command: str) -> None:
        await _shell(command.format(node=self.node_name))
        self._baseline = {}  # the kubelet's counters start again

        async def ready() -> bool:
            node = await self.kubectl.json("get", "node", self.node_name)
            return (
                _is_ready(node) and await self._serves()
            )  # for a while the Node has the status of the earlier kubelet

        await self.until(ready, "the node is ready again")

    async def _serves(self) -> bool:
        """Whether the kubelet's own port is open; True if that is unknown."""
        try:
            await self.kubectl("get", "--raw", f"/api/v1/nodes/{self.node_name}/proxy/healthz")
        except KubectlError as error:
            return "connection refused" not in str(error)
        return True

    async def _registrations(self) -> dict[str, int]:
        pattern = rf'^{_REGISTRATIONS}{{.*?resource_name="([^"]+)".*?}} ([0-9.e+]+)$'
        found = re.findall(pattern, await self._metrics(), re.MULTILINE)
        return {name: int(float(count)) for name, count in found}

    async def _metrics(self) -> str:
        """The kubelet's metrics; empty if they cannot be read."""
        try:
            return await self._read_metrics()
        except KubectlError:
            return ""

    async def _read_metrics(self) -> str:
        return await self.kubectl("get", "--raw", f"/api/v1/nodes/{self.node_name}/proxy/metrics")


def _is_ready(node: Mapping[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node.get("status", {}).get("conditions", ()))


async def _shell(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command)
    if code := await process.wait():
        raise ScenarioError(f"{command!r} ended with exit code {code}")


def placed(document: Mapping[str, Any], driver: ClusterDriver) -> dict[str, Any]:
    """An object of the overlay, moved to the driver's namespace, node and image."""
    made = copy.deepcopy(dict(document))
    if made["kind"].startswith("ClusterRole"):
        made["metadata"]["name"] += f"-{driver.namespace}"
        made["metadata"].setdefault("labels", {})[leftovers.RUN] = driver.namespace
    else:
        made["metadata"]["namespace"] = driver.namespace
    if made["kind"].endswith("RoleBinding"):
        for subject in made["subjects"]:
            subject["namespace"] = driver.namespace
    if made["kind"] == "ClusterRoleBinding":
        made["roleRef"]["name"] += f"-{driver.namespace}"
    if made["kind"] == "ConfigMap":
        made["data"] = {"default.yaml": EMPTY}
    if made["kind"] == "DaemonSet":
        spec = made["spec"]["template"]["spec"]
        spec["nodeSelector"] = {"kubernetes.io/hostname": driver.hostname}
        spec["tolerations"] = [{"operator": "Exists"}]
        (container,) = spec["containers"]
        container["image"] = driver.target.image
        container["args"] = [each for each in container["args"] if not each.startswith("--device-list-strategy")]
    return made


def filled(manifest: Mapping[str, Any], *, node: str, image: str) -> dict[str, Any]:
    """A scenario's pod with the fields for a real cluster: an image, a command that waits, and the node.

    It is bound to the node, so that the kubelet and not the scheduler refuses it.
    """
    document = copy.deepcopy(dict(manifest))
    document["apiVersion"], document["kind"] = "v1", "Pod"
    spec = document["spec"]
    spec |= {"nodeName": node, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}
    for container in spec.get("initContainers", []):
        waits = container.get("restartPolicy") == "Always"
        container |= {"image": image, "command": _SLEEP if waits else ["true"]}
    for container in spec["containers"]:
        container |= {"image": image, "command": container.get("command", _SLEEP)}
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        container["imagePullPolicy"] = "IfNotPresent"
        resources = container.get("resources", {})
        container["resources"] = {
            key: values if key == "claims" else {name: str(amount) for name, amount in values.items()}
            for key, values in resources.items()
        }
    return document


def unbound(document: Mapping[str, Any], hostname: str) -> dict[str, Any]:
    """A pod for the scheduler, which allocates its claims and may select this node only."""
    spec = {key: each for key, each in document["spec"].items() if key != "nodeName"}
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), "kubernetes.io/hostname": hostname}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), {"operator": "Exists"}]
    return {**document, "spec": spec}


def capacity(node: Mapping[str, Any]) -> Capacity:
    """The extended resources of a Node object."""

    def extended(numbers: Mapping[str, str]) -> dict[str, int]:
        ours = {key: value for key, value in numbers.items() if "/" in key and ".kubernetes.io/" not in key}
        return {key: int(value) for key, value in ours.items() if value.isdigit()}

    status = node["status"]
    return Capacity(extended(status.get("capacity", {})), extended(status.get("allocatable", {})))


def pod_status(spec: PodSpec, document: Mapping[str, Any]) -> PodStatus:
    """The status of a Pod object. Devices come from `allocatedResourcesStatus` (on since 1.36), which only app
    containers have.
    """
    status = document["status"]
    lists = (status.get(key, []) for key in ("initContainerStatuses", "containerStatuses"))
    seen = {each["name"]: each for statuses in lists for each in statuses}
    containers = tuple(_container(each, seen.get(each.name, {})) for each in spec.containers)
    phase = Phase(status.get("phase", "Pending"))
    terminating = bool((document.get("metadata") or {}).get("deletionTimestamp"))
    return PodStatus(spec, phase, status.get("reason", ""), status.get("message", ""), containers, terminating)


def _container(spec: ContainerSpec, status: Mapping[str, Any]) -> ContainerStatus:
    health = {
        each["name"]: {device["resourceID"]: device.get("health", "Unknown") for device in each.get("resources", [])}
        for each in status.get("allocatedResourcesStatus", [])
    }
    waiting = status.get("state", {}).get("waiting", {})
    return ContainerStatus(
        name=spec.name,
        kind=spec.kind,
        running="running" in status.get("state", {}),
        waiting=waiting.get("reason", ""),
        message=waiting.get("message", ""),
        restarts=int(status.get("restartCount", 0)),
        devices={name: tuple(sorted(devices)) for name, devices in health.items() if not name.startswith("claim:")},
        health=health,
    )
