"""Scenarios: what happens to a node, and what must be seen of it.

Owns the values and their meaning against any node (`play`), embedded or real, behind the `Driver` protocol.
Expectations are waited for, never slept for. The file's form is in `scenariofile`, the embedded node in `driver`.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, assert_never

from ...errors import VdevError
from ..device_manager.device_table import Capacity
from ..objects.pods import ContainerStatus, PodStatus
from ..render import edits_json


class ScenarioError(VdevError):
    """What a scenario expects did not come true; the text says what was seen instead."""


class Capability(Enum):
    """What not every driver can do. A step that needs more than the driver has is skipped with its reason."""

    CLOCK = "clock"  # move the kubelet's time
    KUBELET = "kubelet"  # stop and start the kubelet
    PLUGIN = "plugin"  # stop and start the plugin's process
    HOST_NODES = "host-nodes"  # make and remove device nodes
    EDITS = "edits"  # see what a container gets
    FINDINGS = "findings"  # the embedded kubelet's findings
    REGISTRATIONS = "registrations"  # the kubelet's counter of registrations
    REBOOT = "reboot"  # let the node go down and come back, the plugin before the kubelet
    REASONS = "reasons"  # why the plugin calls a device Unhealthy


class Action(Enum):
    """A step without arguments."""

    RESTART_KUBELET = "restartKubelet"
    CRASH_KUBELET = "crashKubelet"
    START_KUBELET = "startKubelet"
    RESTART_PLUGIN = "restartPlugin"
    STOP_PLUGIN = "stopPlugin"
    START_PLUGIN = "startPlugin"
    REBOOT_PLUGIN_FIRST = "rebootPluginFirst"


_NEEDS = {
    **dict.fromkeys([Action.RESTART_KUBELET, Action.CRASH_KUBELET, Action.START_KUBELET], Capability.KUBELET),
    **dict.fromkeys([Action.RESTART_PLUGIN, Action.STOP_PLUGIN, Action.START_PLUGIN], Capability.PLUGIN),
    Action.REBOOT_PLUGIN_FIRST: Capability.REBOOT,
}


@dataclass(frozen=True, slots=True)
class EditConfiguration:
    """The plugin's configuration file is replaced by this text."""

    text: str


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """Seconds pass for the kubelet."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CreatePod:
    """The pod of this name is created, bound to the node."""

    name: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """The pod of this name is deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class RestartContainer:
    """A pod's first app container dies and is started again."""

    pod: str


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node of the host is made, or removed."""

    path: str
    make: bool


@dataclass(frozen=True, slots=True)
class Expect:
    """What must be seen, sooner or later. `pods` holds None for a pod that must not be there; `unhealthy` the reason of
    each device that must be listed as Unhealthy, by resource and id.
    """

    node: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    registrations: Mapping[str, int] = field(default_factory=dict)
    unhealthy: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    no_error_findings: bool = False


Step = Action | EditConfiguration | AdvanceClock | CreatePod | DeletePod | RestartContainer | DeviceNode | Expect


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file. `configuration` is the plugin's first configuration; `pods` are manifests by the name of the pod.

    `hardware` says which pieces of hardware a device id stands for; two pods must never have one piece. It is looked at
    after each step and while an expectation is waited for.
    """

    title: str
    configuration: str
    steps: tuple[Step, ...]
    pods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    requires: frozenset[Capability] = frozenset()
    hardware: Mapping[str, frozenset[str]] = field(default_factory=dict)


class Driver(Protocol):
    """A node with a kubelet and a plugin on it, to which things can be done."""

    capabilities: frozenset[Capability]

    async def configure(self, text: str) -> None:
        """Replace the plugin's configuration; starts the plugin the first time."""

    async def act(self, action: Action) -> None:
        """Do something to the kubelet or the plugin."""

    async def advance_clock(self, seconds: float) -> None:
        """Let time pass for the kubelet."""

    async def create_pod(self, manifest: Mapping[str, Any]) -> None:
        """Create a pod that is bound to the node."""

    async def delete_pod(self, name: str) -> None:
        """Delete a pod, at once."""

    async def restart_container(self, pod: str) -> None:
        """Let the pod's first app container die and start again."""

    async def device_node(self, path: str, *, make: bool) -> None:
        """Make or remove a device node of the host."""

    async def node(self) -> Capacity:
        """What the node status shows."""

    async def pod(self, name: str) -> PodStatus | None:
        """A pod as it is, None if there is none."""

    async def registrations(self, resource: str) -> int:
        """How often a resource was registered since the kubelet started counting."""

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """Why the plugin calls devices Unhealthy, by resource and device id; empty while it does not answer."""

    async def errors(self) -> list[str]:
        """What was found wrong with the plugin."""

    async def change(self) -> None:
        """Return soon, and early if something changed. Raises ScenarioError if the plugin ended by itself."""


async def play(scenario: Scenario, driver: Driver, *, patience: float = 60.0) -> list[str]:
    """Play a scenario; returns why steps were skipped. Each expectation has `patience` seconds to come true.

    Raises ScenarioError.
    """
    if missing := scenario.requires - driver.capabilities:
        return [f"{scenario.title}: all of it needs {', '.join(sorted(c.value for c in missing))}"]
    skipped = []
    await driver.configure(scenario.configuration)
    for number, step in enumerate(scenario.steps, 1):
        need = _need(step)
        if need is not None and need not in driver.capabilities:
            skipped.append(f"{scenario.title}: step {number} needs {need.value}")
            continue
        try:
            await _do(step, scenario, driver, patience)
            await _check_hardware(scenario, driver)
        except ScenarioError as error:
            raise ScenarioError(f"{scenario.title}: step {number}: {error}") from error
    return skipped


def _need(step: Step) -> Capability | None:
    match step:
        case Action():
            return _NEEDS[step]
        case AdvanceClock():
            return Capability.CLOCK
        case DeviceNode():
            return Capability.HOST_NODES
        case EditConfiguration() | CreatePod() | DeletePod() | RestartContainer() | Expect():
            return None
        case _:
            assert_never(step)


async def _do(step: Step, scenario: Scenario, driver: Driver, patience: float) -> None:
    match step:
        case Action():
            await driver.act(step)
        case EditConfiguration():
            await driver.configure(step.text)
        case AdvanceClock():
            await driver.advance_clock(step.seconds)
        case CreatePod():
            await driver.create_pod(scenario.pods[step.name])
        case DeletePod():
            await driver.delete_pod(step.name)
        case RestartContainer():
            await driver.restart_container(step.pod)
        case DeviceNode():
            await driver.device_node(step.path, make=step.make)
        case Expect():
            await _await(step, scenario, driver, patience)
        case _:
            assert_never(step)


async def _await(expect: Expect, scenario: Scenario, driver: Driver, patience: float) -> None:
    seen = await _differences(expect, driver)
    try:
        async with asyncio.timeout(patience):
            while seen:
                await driver.change()
                await _check_hardware(scenario, driver)
                seen = await _differences(expect, driver)
    except TimeoutError:
        raise ScenarioError(f"not within {patience:g} s: {'; '.join(seen)}") from None


async def _check_hardware(scenario: Scenario, driver: Driver) -> None:
    """Raise ScenarioError if two pods that are not over have the same piece of hardware."""
    if not scenario.hardware:
        return
    owners: dict[str, tuple[str, str]] = {}
    for name in scenario.pods:
        pod = await driver.pod(name)
        if pod is None or pod.phase.terminal:
            continue
        for id_ in sorted({id_ for each in pod.containers for ids in each.devices.values() for id_ in ids}):
            for piece in sorted(scenario.hardware.get(id_, {id_})):
                other, theirs = owners.setdefault(piece, (name, id_))
                if other != name:
                    raise ScenarioError(f"{piece} is on two pods: {other} has {theirs}, and {name} has {id_}")


async def _differences(expect: Expect, driver: Driver) -> list[str]:
    node = await driver.node()
    found = []
    for resource, numbers in expect.node.items():
        shown = (node.capacity.get(resource, 0), node.allocatable.get(resource, 0))
        if shown != numbers:
            found.append(f"{resource}: expected capacity and allocatable {numbers}, seen {shown}")
    for name, wanted in expect.pods.items():
        pod = await driver.pod(name)
        if pod is None or wanted is None:
            found += [f"pod {name}: expected {wanted}, seen {pod}"] if (pod is None) != (wanted is None) else []
        else:
            found += _pod_differences(wanted, pod, edits=Capability.EDITS in driver.capabilities)
    if Capability.REGISTRATIONS in driver.capabilities:
        for resource, count in expect.registrations.items():
            if (seen := await driver.registrations(resource)) != count:
                found.append(f"{resource}: expected {count} registrations, seen {seen}")
    if expect.unhealthy and not found and Capability.REASONS in driver.capabilities:
        found += _reason_differences(expect.unhealthy, await driver.reasons())
    if expect.no_error_findings and Capability.FINDINGS in driver.capabilities:
        found += await driver.errors()
    return found


def _reason_differences(wanted: Mapping[str, Mapping[str, Any]], seen: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for resource, devices in wanted.items():
        for id_, reason in devices.items():
            if not _same(reason, seen.get((resource, id_))):
                yield f"{resource}: {id_}: expected Unhealthy, {reason!r}; seen {seen.get((resource, id_))!r}"


def _pod_differences(wanted: Mapping[str, Any], pod: PodStatus, *, edits: bool) -> Iterator[str]:
    seen = {"phase": pod.phase.value, "reason": pod.reason, "message": pod.message}
    for key, value in wanted.items():
        if key == "containers":
            for name, container in value.items():
                yield from _container_differences(container, pod.container(name), f"pod {pod.name}: {name}", edits)
        elif not _same(value, seen[key]):
            yield f"pod {pod.name}: {key}: expected {value!r}, seen {seen[key]!r}"


def _container_differences(
    wanted: Mapping[str, Any],
    container: ContainerStatus,
    where: str,
    edits: bool,  # noqa: FBT001  # private
) -> Iterator[str]:
    counts = {resource: len(ids) for resource, ids in container.devices.items()}
    health = {resource: sorted(ids.values()) for resource, ids in container.health.items()}
    seen: dict[str, Any] = {"deviceCounts": counts, "deviceHealth": health, "restarts": container.restarts}
    seen["devices"] = {resource: list(ids) for resource, ids in container.devices.items()}
    seen |= edits_json(container.edits) if edits else {}
    for key, value in wanted.items():
        if key in seen and not _same(value, seen[key]):
            yield f"{where}: {key}: expected {value!r}, seen {seen[key]!r}"


def _same(wanted: Any, seen: Any) -> bool:
    """Equal, with `{matches: pattern}` for texts at any depth; a pattern must match the whole text."""
    if isinstance(wanted, Mapping):
        if wanted.keys() == {"matches"} and isinstance(seen, str):
            return re.fullmatch(wanted["matches"], seen, re.DOTALL) is not None
        return (
            isinstance(seen, Mapping)
            and wanted.keys() == seen.keys()
            and all(_same(wanted[k], seen[k]) for k in wanted)
        )
    if isinstance(wanted, list):
        return isinstance(seen, list) and len(wanted) == len(seen) and all(map(_same, wanted, seen))
    return bool(wanted == seen)
