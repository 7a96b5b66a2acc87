"""Plays a scenario on a node: one step after the other, each expectation waited for.

Nothing here sleeps: the driver says when to look again. How a step is done is the driver's business.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import VdevError
from ..objects.node_devices import Capacity
from ..objects.pods import ContainerStatus, PodStatus
from ..render import edits_json
from . import placeholders
from .placeholders import DRIVER, RESOURCE
from .scenario import ANY, Action, Capability, Driver, Expect, Scenario, ScenarioError, Step, StepFailed

_NEEDS: Mapping[str, Capability] = {
    **dict.fromkeys(["restartKubelet", "crashKubelet", "startKubelet"], Capability.KUBELET),
    **dict.fromkeys(["restartPlugin", "stopPlugin", "startPlugin"], Capability.PLUGIN),
    "killPlugin": Capability.KILL,
    "rebootPluginFirst": Capability.REBOOT,
    "rebootKubeletFirst": Capability.REBOOT_KUBELET_FIRST,
    "rollPlugin": Capability.ROLL,
    "advanceClock": Capability.CLOCK,
    **dict.fromkeys(["createDeviceNode", "removeDeviceNode"], Capability.HOST_NODES),
    **dict.fromkeys(["createObject", "deleteObject", "forceDeletePod"], Capability.DRA),
    "hook": Capability.HOOK,
}


async def _nothing(_step: int) -> None:
    """Nothing to do after a step."""


async def play(
    scenario: Scenario,
    driver: Driver,
    *,
    patience: float = 60.0,
    after: Callable[[int], Awaitable[None]] = _nothing,
) -> list[str]:
    """Play a scenario; returns why steps were skipped. Each expectation has `patience` seconds to come true.

    `after` is called with the number of each step that was done; a ScenarioError that it raises fails the step. Raises
    StepFailed, and ScenarioError for what fails before the first step.
    """
    if missing := scenario.requires - driver.capabilities:
        return [f"{scenario.title}: skipped; it needs {', '.join(sorted(c.value for c in missing))}"]
    skipped = []
    for document in scenario.objects:
        await driver.create_object(document)
    await driver.configure(scenario.configuration)
    seen = _Seen()
    for number, step in enumerate(scenario.steps, 1):
        need = need_of(step)
        if need is not None and need not in driver.capabilities:
            skipped.append(f"{scenario.title}: step {number} needs {need.value}")
            continue
        try:
            await _do(step, scenario, driver, patience, seen)
            await _check_hardware(scenario, driver)
            await after(number)
        except VdevError as error:
            raise StepFailed(scenario.title, number, str(error)) from error
    return skipped


@dataclass(slots=True)
class _Seen:
    """What `remember` noted: the node, and the devices of containers by pod and name; `noted` once it did."""

    node: Capacity = field(default_factory=lambda: Capacity({}, {}))
    devices: dict[tuple[str, str], Mapping[str, Sequence[str]]] = field(default_factory=dict)
    noted: bool = False


def need_of(step: Step) -> Capability | None:
    """What a driver must be able to do for a step, None where every one can."""
    return _NEEDS.get(step.name)


async def _do(step: Step, scenario: Scenario, driver: Driver, patience: float, seen: _Seen) -> None:
    value = step.value
    match step.name:
        case "editConfiguration":
            await driver.configure(value)
        case "advanceClock":
            await driver.advance_clock(value)
        case "createPod":
            await driver.create_pod(await _filled(scenario.pods[value], driver))
        case "deletePod" | "forceDeletePod":
            await driver.delete_pod(value, force=step.name == "forceDeletePod")
        case "restartContainer":
            await driver.restart_container(value)
        case "createObject":
            await driver.create_object(value)
        case "deleteObject":
            await driver.delete_object(value["kind"], value["name"], value.get("namespace", ""))
        case "createDeviceNode" | "removeDeviceNode":
            await driver.device_node(value, make=step.name == "createDeviceNode")
        case "hook":
            await driver.hook(value)
        case "remember":
            await _remember(seen, scenario, driver)
        case "expect":
            await _await(value, scenario, driver, patience, seen)
        case _:
            await driver.act(Action(step.name))


async def _filled(manifest: Mapping[str, Any], driver: Driver) -> Mapping[str, Any]:
    """A Pod manifest with what it leaves open: names of resources, and how many `all` are."""
    names = {each: await driver.names(each) for each in placeholders.used(manifest)}
    if missing := next((each for each, found in names.items() if not found), None):
        raise ScenarioError(_nobody(missing))
    return placeholders.counted(placeholders.spread(manifest, names), await driver.node())


async def _remember(seen: _Seen, scenario: Scenario, driver: Driver) -> None:
    seen.node, seen.noted = await driver.node(), True
    for name in scenario.pods:
        if (pod := await driver.pod(name)) is not None:
            seen.devices |= {(name, each.name): each.devices for each in pod.containers}


async def _await(expect: Expect, scenario: Scenario, driver: Driver, patience: float, seen: _Seen) -> None:
    found = await _differences(expect, driver, seen)
    try:
        async with asyncio.timeout(patience):
            while found:
                if lost := await _lost(expect, driver):
                    raise ScenarioError(f"it cannot come true any more: {'; '.join(lost)}")
                await driver.change()
                await _check_hardware(scenario, driver)
                found = await _differences(expect, driver, seen)
    except TimeoutError:
        why = "; ".join([*found, *await driver.causes()])
        raise ScenarioError(f"still not true after {patience:g} s: {why}") from None
    if expect.stays:
        await _stays(expect, scenario, driver, seen)


async def _lost(expect: Expect, driver: Driver) -> list[str]:
    """What no time will mend: a finding is never taken back, and a pod that has ended does not run again."""
    lost = []
    if expect.no_error_findings and Capability.FINDINGS in driver.capabilities:
        lost += await driver.errors(expect.no_warnings)
    for name, wanted in expect.pods.items():
        pod = await driver.pod(name)
        if (
            pod is not None
            and wanted
            and pod.phase.terminal
            and wanted.get("phase", pod.phase.value) != pod.phase.value
        ):
            lost += _pod_differences({"phase": wanted["phase"]}, pod, edits=False)
    return lost


async def _stays(expect: Expect, scenario: Scenario, driver: Driver, seen: _Seen) -> None:
    """Raise ScenarioError if what came true does not stay true."""
    try:
        async with asyncio.timeout(expect.stays):
            while True:
                await driver.change()
                await _check_hardware(scenario, driver)
                if found := await _differences(expect, driver, seen):
                    raise ScenarioError(f"came true, and did not stay so for {expect.stays:g} s: {'; '.join(found)}")
    except TimeoutError:
        return


async def _check_hardware(scenario: Scenario, driver: Driver) -> None:
    """Raise ScenarioError if two pods that are not over have the same piece of hardware.

    Pods are read one after the other, and the first may be over by the time that the second has what it had.
    """
    if not scenario.hardware:
        return
    owners: dict[str, tuple[str, str]] = {}
    for name in scenario.pods:
        for id_ in sorted(await _ids(driver, name)):
            for piece in sorted(scenario.hardware.get(id_, {id_})):
                other, theirs = owners.setdefault(piece, (name, id_))
                if other != name and theirs in await _ids(driver, other):
                    raise ScenarioError(f"{piece} is on two pods: {other} has {theirs}, and {name} has {id_}")
                owners[piece] = name, id_


async def _ids(driver: Driver, name: str) -> set[str]:
    """The ids of devices, and the names of those of claims, that a pod's containers have while it is not over."""
    pod = await driver.pod(name)
    if pod is None or pod.phase.terminal:
        return set()
    ids = {id_ for each in pod.containers for ids in each.devices.values() for id_ in ids}
    return ids | {id_.rpartition("/")[2] for each in pod.containers for ids in each.claims.values() for id_ in ids}


async def _differences(expect: Expect, driver: Driver, seen: _Seen) -> list[str]:
    names = {each: await driver.names(each) for each in _placeholders(expect)}
    found = [_nobody(each) for each in sorted(names) if not names[each]]
    found += _node_differences(expect, await driver.node(), names, seen)
    found += await _pods_differences(expect, driver, names, seen)
    if Capability.DRA in driver.capabilities:
        found += await _dra_differences(expect, driver, names)
    if Capability.REGISTRATIONS in driver.capabilities:
        for resource, count in placeholders.spread(expect.registrations, names).items():
            if not count.met(times := await driver.registrations(resource), 0):
                found.append(f"{resource}: expected {count.in_words(0)} registrations, seen {times}")
    if expect.unhealthy and not found and Capability.REASONS in driver.capabilities:
        found += _reason_differences(expect.unhealthy, await driver.reasons())
    if expect.no_error_findings and Capability.FINDINGS in driver.capabilities:
        found += await driver.errors(expect.no_warnings)
    return found


def _placeholders(expect: Expect) -> set[str]:
    parts = [*expect.pods.values(), expect.node, expect.registrations, expect.drivers, expect.slices]
    return set().union(*map(placeholders.used, parts))


def _nobody(placeholder: str) -> str:
    """Why a placeholder stands for nothing."""
    return {RESOURCE: "no device plugin has registered", DRIVER: "no DRA driver has registered"}[placeholder]


def _node_differences(expect: Expect, node: Capacity, names: Mapping[str, Sequence[str]], seen: _Seen) -> Iterator[str]:
    for resource, numbers in placeholders.spread(expect.node, names).items():
        if any(each.count is None for each in numbers) and not seen.noted:
            raise ScenarioError("it refers to what was remembered, but no step before it is `remember:`")
        shown = (node.capacity.get(resource, 0), node.allocatable.get(resource, 0))
        before = (seen.node.capacity.get(resource, 0), seen.node.allocatable.get(resource, 0))
        if not all(amount.met(*pair) for amount, *pair in zip(numbers, shown, before, strict=True)):
            wanted = ", ".join(amount.in_words(then) for amount, then in zip(numbers, before, strict=True))
            yield f"{resource}: expected capacity and allocatable ({wanted}), seen {shown}"


async def _pods_differences(
    expect: Expect, driver: Driver, names: Mapping[str, Sequence[str]], seen: _Seen
) -> list[str]:
    found: list[str] = []
    for name, document in expect.pods.items():
        pod, wanted = await driver.pod(name), placeholders.spread(document, names)
        if pod is None or wanted is None:
            found += [f"pod {name}: expected {wanted}, seen {pod}"] if (pod is None) != (wanted is None) else []
        else:
            edits = Capability.EDITS in driver.capabilities
            found += _pod_differences(_recalled(wanted, name, seen), pod, edits=edits)
            if Capability.DRA in driver.capabilities:
                found += await _event_differences(wanted.get("events", []), name, driver)
    return found


def _recalled(wanted: Mapping[str, Any], pod: str, seen: _Seen) -> Mapping[str, Any]:
    """What is expected of a pod, with the devices that its containers had where `remembered` stands for them."""
    containers = wanted.get("containers", {})
    if not any(each.get("devices") == "remembered" for each in containers.values()):
        return wanted
    filled = {}
    for name, each in containers.items():
        had = seen.devices.get((pod, name))
        if each.get("devices") == "remembered" and had is None:
            raise ScenarioError(f"pod {pod}: {name}: its devices are not remembered; put `remember:` after it runs")
        same = {"devices": {resource: list(ids) for resource, ids in (had or {}).items()}}
        filled[name] = {**each, **same} if each.get("devices") == "remembered" else each
    return {**wanted, "containers": filled}


async def _event_differences(wanted: Sequence[Any], pod: str, driver: Driver) -> list[str]:
    seen = await driver.events(pod) if wanted else []
    return [
        f"pod {pod}: expected an event {text!r}, seen {list(seen)!r}"
        for text in wanted
        if not any(_same(text, each) for each in seen)
    ]


async def _dra_differences(expect: Expect, driver: Driver, names: Mapping[str, Sequence[str]]) -> list[str]:
    rows: list[tuple[str, Any, Any]] = []
    found: list[str] = []
    for name, devices in placeholders.spread(expect.slices, names).items():
        seen = await driver.slices(name)
        if devices != ANY:
            rows.append((f"slices of {name}", _in_order(devices), _in_order(seen)))
        elif seen is None and Capability.PUBLISHING in driver.capabilities:
            found.append(f"{name} has published no ResourceSlice for the node")
    for name, devices in expect.claims.items():
        rows.append((f"claim {name}", devices, await driver.claim(name)))
    if Capability.DRIVERS in driver.capabilities:
        for name, count in placeholders.spread(expect.drivers, names).items():
            if not count.met(there := await driver.drivers(name), 0):
                found.append(f"connected instances of {name}: expected {count.in_words(0)}, seen {there}")
    return found + [
        f"{what}: expected {wanted!r}, seen {seen!r}" for what, wanted, seen in rows if not _same(wanted, seen)
    ]


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
    edits: bool,
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
