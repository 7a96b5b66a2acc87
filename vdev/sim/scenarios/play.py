"""Plays a scenario on a node: one step after the other, each expectation waited for.

Nothing here sleeps: the driver says when to look again. How a step is done is the driver's business.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from ..objects.pods import ContainerStatus, PodStatus
from ..render import edits_json
from .scenario import (
    Action,
    AdvanceClock,
    Capability,
    CreateObject,
    CreatePod,
    DeleteObject,
    DeletePod,
    Driver,
    EditConfiguration,
    Expect,
    ForceDeletePod,
    HostNode,
    RestartContainer,
    Scenario,
    ScenarioError,
    Step,
)

_NEEDS = {
    **dict.fromkeys([Action.RESTART_KUBELET, Action.CRASH_KUBELET, Action.START_KUBELET], Capability.KUBELET),
    **dict.fromkeys([Action.RESTART_PLUGIN, Action.STOP_PLUGIN, Action.START_PLUGIN], Capability.PLUGIN),
    Action.REBOOT_PLUGIN_FIRST: Capability.REBOOT,
    Action.REBOOT_KUBELET_FIRST: Capability.REBOOT_KUBELET_FIRST,
    Action.ROLL_PLUGIN: Capability.ROLL,
}


async def play(scenario: Scenario, driver: Driver, *, patience: float = 60.0) -> list[str]:
    """Play a scenario; returns why steps were skipped. Each expectation has `patience` seconds to come true.

    Raises ScenarioError.
    """
    if missing := scenario.requires - driver.capabilities:
        return [f"{scenario.title}: skipped; it needs {', '.join(sorted(c.value for c in missing))}"]
    skipped = []
    for document in scenario.objects:
        await driver.create_object(document)
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
        case HostNode():
            return Capability.HOST_NODES
        case CreateObject() | DeleteObject() | ForceDeletePod():
            return Capability.DRA
        case EditConfiguration() | CreatePod() | DeletePod() | RestartContainer() | Expect():
            return None
        case _:
            assert_never(step)


async def _do(step: Step, scenario: Scenario, driver: Driver, patience: float) -> None:  # noqa: C901  # one case per kind of step
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
        case ForceDeletePod():
            await driver.force_delete_pod(step.name)
        case CreateObject():
            await driver.create_object(step.document)
        case DeleteObject():
            await driver.delete_object(step.kind, step.name, step.namespace)
        case RestartContainer():
            await driver.restart_container(step.pod)
        case HostNode():
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
        raise ScenarioError(f"still not true after {patience:g} s: {'; '.join(seen)}") from None


async def _check_hardware(scenario: Scenario, driver: Driver) -> None:
    """Raise ScenarioError if two pods that are not over have the same piece of hardware."""
    if not scenario.hardware:
        return
    owners: dict[str, tuple[str, str]] = {}
    for name in scenario.pods:
        pod = await driver.pod(name)
        if pod is None or pod.phase.terminal:
            continue
        for id_ in sorted(_ids(pod)):
            for piece in sorted(scenario.hardware.get(id_, {id_})):
                other, theirs = owners.setdefault(piece, (name, id_))
                if other != name:
                    raise ScenarioError(f"{piece} is on two pods: {other} has {theirs}, and {name} has {id_}")


def _ids(pod: PodStatus) -> set[str]:
    """The ids of devices, and the names of those of claims, that the pod's containers have."""
    ids = {id_ for each in pod.containers for ids in each.devices.values() for id_ in ids}
    return ids | {id_.rpartition("/")[2] for each in pod.containers for ids in each.claims.values() for id_ in ids}


async def _differences(expect: Expect, driver: Driver) -> list[str]:
    node = await driver.node()
    found = []
    for resource, numbers in expect.node.items():
        shown = (node.capacity.get(resource, 0), node.allocatable.get(resource, 0))
        if shown != numbers:
            found.append(f"{resource}: expected capacity and allocatable {numbers}, seen {shown}")
    found += await _pods_differences(expect, driver)
    if Capability.DRA in driver.capabilities:
        found += await _dra_differences(expect, driver)
    if Capability.REGISTRATIONS in driver.capabilities:
        for resource, count in expect.registrations.items():
            if (seen := await driver.registrations(resource)) != count:
                found.append(f"{resource}: expected {count} registrations, seen {seen}")
    if expect.unhealthy and not found and Capability.REASONS in driver.capabilities:
        found += _reason_differences(expect.unhealthy, await driver.reasons())
    if expect.no_error_findings and Capability.FINDINGS in driver.capabilities:
        found += await driver.errors()
    return found


async def _pods_differences(expect: Expect, driver: Driver) -> list[str]:
    found: list[str] = []
    for name, wanted in expect.pods.items():
        pod = await driver.pod(name)
        if pod is None or wanted is None:
            found += [f"pod {name}: expected {wanted}, seen {pod}"] if (pod is None) != (wanted is None) else []
        else:
            found += _pod_differences(wanted, pod, edits=Capability.EDITS in driver.capabilities)
            if Capability.DRA in driver.capabilities:
                found += await _event_differences(wanted.get("events", []), name, driver)
    return found


async def _event_differences(wanted: Sequence[Any], pod: str, driver: Driver) -> list[str]:
    seen = await driver.events(pod) if wanted else []
    return [
        f"pod {pod}: expected an event {text!r}, seen {list(seen)!r}"
        for text in wanted
        if not any(_same(text, each) for each in seen)
    ]


async def _dra_differences(expect: Expect, driver: Driver) -> list[str]:
    rows: list[tuple[str, Any, Any]] = []
    for name, devices in expect.slices.items():
        seen = await driver.slices(name)
        rows.append((f"slices of {name}", _in_order(devices), _in_order(seen)))
    for name, devices in expect.claims.items():
        rows.append((f"claim {name}", devices, await driver.claim(name)))
    if Capability.DRIVERS in driver.capabilities:
        for name, count in expect.drivers.items():
            rows.append((f"connected instances of {name}", count, await driver.drivers(name)))
    return [f"{what}: expected {wanted!r}, seen {seen!r}" for what, wanted, seen in rows if not _same(wanted, seen)]


def _in_order(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _reason_differences(wanted: Mapping[str, Mapping[str, Any]], seen: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for resource, devices in wanted.items():
        for id_, reason in devices.items():
            if not _same(reason, seen.get((resource, id_))):
                yield f"{resource}: {id_}: expected Unhealthy, {reason!r}; seen {seen.get((resource, id_))!r}"


def _pod_differences(wanted: Mapping[str, Any], pod: PodStatus, *, edits: bool) -> Iterator[str]:
    seen = {"phase": pod.phase.value, "reason": pod.reason, "message": pod.message, "terminating": pod.terminating}
    for key, value in wanted.items():
        if key == "events":
            continue  # looked at by itself
        if key == "containers":
            for name, container in value.items():
                yield from _container_differences(container, pod.container(name), f"pod {pod.name}: {name}", edits)
        elif not _same(value, seen[key]):
            why = f" ({': '.join(filter(None, (pod.reason, pod.message)))})" if key == "phase" and pod.reason else ""
            yield f"pod {pod.name}: {key}: expected {value!r}, seen {seen[key]!r}{why}"


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
    seen["claims"] = {name: [each.rpartition("/")[2] for each in ids] for name, ids in container.claims.items()}
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
