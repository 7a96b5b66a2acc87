"""Runs a scenario on a node: executes its steps in order, and waits until each expectation is true.

There are no fixed sleeps, because the node signals possible changes. The node also implements the steps.
"""

import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import VdevError
from ..objects.pods import ContainerStatus, PodStatus, edits_json
from .node import EmbeddedNode
from .scenario import ANY, COMPARISONS, DRIVER, POD_STEPS, REMEMBERED, RESOURCE, Expect, Scenario, ScenarioError, Step

_NOT_REGISTERED = {RESOURCE: "no device plugin has registered", DRIVER: "no DRA driver has registered"}
_Row: TypeAlias = tuple[str, Any, Any]  # place in the expectation, expected value, seen value


async def play(
    scenario: Scenario,
    node: EmbeddedNode,
    *,
    patience: float = 60.0,
    done: Callable[[str], object] = lambda _failure: None,
) -> None:
    """Run a scenario.

    Each expectation must become true within `patience` seconds. `done` is called after each step, with its error or an
    empty text. Raises ScenarioError; its cause is the error of the step.
    """
    for document in scenario.objects:
        await node.create_object(document)
    await node.edit_configuration(scenario.configuration)
    player = _Player(scenario, node, patience)
    for number, step in enumerate(scenario.steps, 1):
        try:
            await player.do(step)
            await player.check()
        except VdevError as error:
            done(str(error))
            raise ScenarioError(f"{scenario.title}: step {number}: {error}") from error
        done("")


class _Player:
    def __init__(self, scenario: Scenario, node: EmbeddedNode, patience: float) -> None:
        self._scenario = scenario
        self._node = node
        self._patience = patience
        self._remembered: dict[str, Any] = {}  # values of the last `remember`, by their place in an expectation

    async def do(self, step: Step) -> None:
        match step.name:
            case "remember":
                await self._remember()
            case "expect":
                await self._await(step.value)
            case "create_pod":
                await self._node.create_pod(await self._manifest(step.value))
            case name:
                if name in POD_STEPS and await self._node.pod(step.value) is None:
                    raise ScenarioError(f"there is no pod {step.value!r} now; `createPod: {step.value}` creates it")
                method = getattr(self._node, name)
                await (method() if step.value is None else method(step.value))

    async def check(self) -> None:
        """Raise ScenarioError for a mistake of the plugin, or if two pods hold the same piece of hardware.

        Pods are read one after the other, and the first pod may end before the second one gets its device. So the first
        pod is read again before an error is raised.
        """
        await self._node.check()
        hardware = self._scenario.hardware
        owners: dict[str, tuple[str, str]] = {}
        for name in self._scenario.pods if hardware else ():
            for id_ in sorted(await self._ids(name)):
                for piece in sorted(hardware.get(id_, [id_])):
                    other, theirs = owners.setdefault(piece, (name, id_))
                    if other != name and theirs in await self._ids(other):
                        raise ScenarioError(f"{piece} is on two pods: {other} has {theirs}, and {name} has {id_}")
                    owners[piece] = name, id_

    async def _ids(self, name: str) -> set[str]:
        """Return the ids of a pod's devices and the names of the devices of its claims."""
        pod = await self._node.pod(name)
        if pod is None or pod.phase.terminal:
            return set()
        held = [ids for each in pod.containers for ids in (*each.devices.values(), *_claims(each).values())]
        return {id_ for ids in held for id_ in ids}

    async def _manifest(self, pod: str) -> Mapping[str, Any]:
        """Return a Pod manifest with its placeholders and the amount `all` replaced."""
        manifest = self._scenario.manifest(pod)
        names = await self._names(manifest)
        if missing := next((each for each, found in names.items() if not found), None):
            raise ScenarioError(_NOT_REGISTERED[missing])
        filled: Mapping[str, Any] = _filled(manifest, names, (await self._node.node()).allocatable)
        return filled

    async def _names(self, document: Mapping[str, Any]) -> dict[str, Sequence[str]]:
        return {each: await self._node.names(each) for each in sorted(_placeholders(document))}

    async def _remember(self) -> None:
        numbers = await self._node.node()
        seen: dict[str, Any] = {f"{name}: capacity": count for name, count in numbers.capacity.items()}
        seen |= {f"{name}: allocatable": count for name, count in numbers.allocatable.items()}
        for name in self._scenario.pods:
            if (pod := await self._node.pod(name)) is not None:
                for each in pod.containers:
                    seen[f"pod {name}: {each.name}: devices"] = _devices(each)
        self._remembered = seen

    async def _await(self, expect: Expect) -> None:
        """Wait until an expectation is true, and then check that it stays true for `stays` seconds."""
        begun, true_since = time.monotonic(), None
        while True:
            found = await self._differences(expect)
            now = time.monotonic()
            if not found:
                true_since = now if true_since is None else true_since
                if now - true_since >= expect.stays:
                    return
            elif true_since is not None:
                raise ScenarioError(f"it was true, but not for {expect.stays:g} s: {'; '.join(found)}")
            elif now - begun >= self._patience:
                why = "; ".join([*found, *await self._node.causes()])
                raise ScenarioError(f"still not true after {self._patience:g} s: {why}")
            await self._node.change()
            await self.check()

    # --- comparing ----------------------------------------------------------------------------------------------------

    async def _differences(self, expect: Expect) -> list[str]:
        """Return the differences from an expectation. Raises ScenarioError if it can no longer become true."""
        if expect.findings is not None and (forbidden := await self._node.errors(expect.findings)):
            raise ScenarioError("; ".join(forbidden))
        names = await self._names(expect.document)
        found = [_NOT_REGISTERED[each] for each in names if not names[each]]
        return found + self._compared([row async for row in self._rows(_filled(expect.document, names, {}))])

    async def _rows(self, expect: Mapping[str, Any]) -> AsyncIterator[_Row]:
        """Yield the expected and the seen values, except values that this node cannot see."""
        node = self._node
        numbers = await node.node()
        for resource, wanted in expect.get("node", {}).items():
            yield f"{resource}: capacity", wanted["capacity"], numbers.capacity.get(resource, 0)
            yield f"{resource}: allocatable", wanted["allocatable"], numbers.allocatable.get(resource, 0)
        for name, wanted in expect.get("pods", {}).items():
            pod = await node.pod(name)
            if pod is None or wanted is None:
                yield f"pod {name}", wanted, pod
                continue
            for row in _pod_rows(wanted, pod, edits=node.sees_edits):
                yield row
            for text in wanted.get("events", []):
                events = await node.events(name)
                yield f"pod {name}: event", text, next((each for each in events if _same(text, each)), events)
        for driver, devices in expect.get("slices", {}).items():
            slices = await node.slices(driver)
            if devices != ANY:
                yield f"slices of {driver}", _sorted(devices), _sorted(slices)
            elif slices is None and node.sees_slices:
                yield f"slices of {driver}", ANY, None
        for name, devices in expect.get("claims", {}).items():
            yield f"claim {name}", devices, await node.claim(name)
        for driver, count in expect.get("drivers", {}).items():
            if (connected := await node.drivers(driver)) is not None:
                yield f"connected instances of {driver}", count, connected
        for resource, count in expect.get("registrations", {}).items():
            if (registrations := await node.registrations(resource)) is not None:
                yield f"{resource}: registrations", count, registrations
        for resource, texts in expect.get("unhealthy", {}).items():
            if (reasons := await node.reasons()) is not None:
                for id_, text in texts.items():
                    yield f"{resource}: {id_}: reason of Unhealthy", text, reasons.get((resource, id_))

    def _compared(self, rows: Iterable[_Row]) -> list[str]:
        """Return a message for each row that does not meet its expectation."""
        found = []
        for place, wanted, seen in rows:
            expected = wanted
            is_met: Callable[[Any, Any], bool] = _same
            words = ""
            if isinstance(wanted, Mapping) and len(wanted) == 1 and wanted.keys() <= COMPARISONS.keys():
                ((comparison, expected),) = wanted.items()
                is_met, words = COMPARISONS[comparison]
            remembered = expected == REMEMBERED
            if remembered and place not in self._remembered:
                raise ScenarioError(f"{place}: nothing is remembered; put `remember:` before this step")
            if remembered:
                expected = self._remembered[place]
            if not is_met(expected, seen):
                text = f"{words} {expected!r}{' as remembered' if remembered else ''}".lstrip()
                found.append(f"{place}: expected {text}, seen {seen!r}")
        return found


# --- placeholders -----------------------------------------------------------------------------------------------------


def _placeholders(document: Any) -> set[str]:
    """Return the placeholders among the keys of a document, at any depth."""
    if isinstance(document, Mapping):
        found = {key for key in document if key in (RESOURCE, DRIVER)}
        return found.union(*map(_placeholders, document.values()))
    return set().union(*map(_placeholders, document)) if isinstance(document, list) else set()


def _filled(document: Any, names: Mapping[str, Sequence[str]], amounts: Mapping[str, int]) -> Any:
    """Replace each placeholder key in a document with one entry per name, and the amount `all` of a resource."""
    if isinstance(document, list):
        return [_filled(each, names, amounts) for each in document]
    if not isinstance(document, Mapping):
        return document
    found = {}
    for given, value in document.items():
        for key in names.get(str(given), (given,)):
            found[key] = amounts[key] if value == "all" and key in amounts else _filled(value, names, amounts)
    return found


# --- compared values --------------------------------------------------------------------------------------------------


def _pod_rows(wanted: Mapping[str, Any], pod: PodStatus, *, edits: bool) -> Iterator[_Row]:
    """Yield the rows of a pod. Raises ScenarioError if it has ended in another phase, because that is final."""
    seen = {"phase": pod.phase.value, "reason": pod.reason, "message": pod.message, "terminating": pod.terminating}
    why = f" ({pod.reason}: {pod.message})" if pod.reason else ""
    if pod.phase.terminal and "phase" in wanted and not _same(wanted["phase"], pod.phase.value):
        raise ScenarioError(f"pod {pod.name}: phase{why}: expected {wanted['phase']!r}, seen {pod.phase.value!r}")
    for key, value in wanted.items():
        if key in seen:
            yield f"pod {pod.name}: {key}{why if key == 'phase' else ''}", value, seen[key]
    for name, container in wanted.get("containers", {}).items():
        try:
            status = pod.container(name)
        except KeyError as missing:
            raise ScenarioError(missing.args[0]) from missing
        shown = {
            "devices": _devices(status),
            "deviceCounts": {resource: len(ids) for resource, ids in status.devices.items()},
            "deviceHealth": {resource: sorted(ids.values()) for resource, ids in status.health.items()},
            "claims": _claims(status),
            "restarts": status.restarts,
            **(edits_json(status.edits) if edits else {}),
        }
        for key, value in container.items():
            if key in shown:
                yield f"pod {pod.name}: {name}: {key}", value, shown[key]


def _devices(status: ContainerStatus) -> dict[str, list[str]]:
    return {resource: list(ids) for resource, ids in status.devices.items()}


def _claims(status: ContainerStatus) -> dict[str, list[str]]:
    """Return the devices of a container's claims, without driver and pool."""
    return {claim: [id_.rpartition("/")[2] for id_ in ids] for claim, ids in status.claims.items()}


def _sorted(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _same(wanted: Any, seen: Any) -> bool:
    """Whether values are equal. `{matches: pattern}` at any depth must match the whole text. Raises ScenarioError."""
    match wanted:
        case {"matches": pattern} if isinstance(seen, str) and len(wanted) == 1:
            try:
                return re.fullmatch(pattern, seen, re.DOTALL) is not None
            except (re.error, TypeError, OverflowError, RecursionError) as wrong:
                raise ScenarioError(f"matches: {pattern!r} is not a regular expression: {wrong}") from wrong
        case dict():
            return (
                isinstance(seen, dict)
                and wanted.keys() == seen.keys()
                and all(_same(wanted[k], seen[k]) for k in wanted)
            )
        case list():
            return isinstance(seen, list) and len(wanted) == len(seen) and all(map(_same, wanted, seen))
        case _:
            return bool(wanted == seen)
