"""The Events for changes between two plans."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..faults.xids import APPLICATION_ERRORS, described
from ..model.device import grouped
from ..planning.plan import DesiredState
from ..planning.repartition import RepartitionState
from ..planning.resources import Inventory
from .conditions import named


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A snapshot of the agent's state that is not in the plan."""

    applied: int = 0  # how often the configuration was applied
    refused: int = 0  # how often it was refused
    reading: str = ""  # the result of the last reading
    unregistered: Mapping[str, str] = field(default_factory=dict)  # resources that the kubelet does not know, and why
    active_rules: Mapping[str, str] = field(default_factory=dict)  # the fault rules in force, and what each does


NOTHING = Situation()


@dataclass(frozen=True, slots=True)
class EventText:
    """The text of an Event: `reason` is a CamelCase word, `message` a sentence; `warning` is its type."""

    reason: str
    message: str
    warning: bool = False


def of_plans(before: DesiredState | None, now: DesiredState) -> Iterator[EventText]:
    """The Events for changes from one plan to the next; without an earlier plan, for present problems."""
    if before:
        yield from _repartitioned(before.observed.inventory, now.observed.inventory)
    yield from _refused_layouts(before, now)
    yield from _new_xids(before, now)
    yield from _lost_and_back(before, now)


def _repartitioned(before: Inventory, now: Inventory) -> Iterator[EventText]:
    old, new = _profiles(before), _profiles(now)
    for key in sorted(old.keys() & new.keys()):
        if old[key] != new[key]:
            yield EventText("Repartitioned", f"device {key[1]}: {_layout(old[key])} -> {_layout(new[key])}")


def _profiles(inventory: Inventory) -> Mapping[tuple[str, str], Counter[str]]:
    """The profiles of the partitions of each device, by entry and raw device; a whole one has one empty profile."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for resource in inventory.resources.values():
        for device in resource.by_device.values():
            found.setdefault((device.raw.entry, device.raw.id), Counter())[device.profile] += 1
    return found


def _layout(profiles: Counter[str]) -> str:
    if not any(profiles):
        return "whole"
    return ", ".join(f"{number}x {profile}" for profile, number in sorted(profiles.items()) if profile)


def _refused_layouts(before: DesiredState | None, now: DesiredState) -> Iterator[EventText]:
    """Partition layouts that a label of the node chose and that were refused, and why."""
    for label, each in now.observed.layouts.items():
        last = before.observed.layouts.get(label) if before else None
        is_known = last and (last.state, last.value, last.sentence) == (each.state, each.value, each.sentence)
        if each.state is RepartitionState.FAILED and not is_known:
            layout = (
                f"the layout for a node without the label {label}" if each.value is None else f"{label}={each.value}"
            )
            yield EventText("RepartitionFailed", f"{layout} is refused: {each.sentence}", warning=True)


def _new_xids(before: DesiredState | None, now: DesiredState) -> Iterator[EventText]:
    """Uses the reasons of EKS's node monitoring agent, which writes such Events (its pkg/reasons/reasons.go)."""
    known = before.xids if before else {}
    groups = grouped(
        ((name, each), device)
        for (name, device), errors in now.xids.items()
        for each in errors
        if each not in known.get((name, device), ())
    )
    for (name, error), ids in groups.items():
        reason = f"NvidiaXID{error.number}{'Warning' if error.number in APPLICATION_ERRORS else 'Error'}"
        message = f"{name}: {named(sorted(ids))}: {described(error.number)} (fault rule {error.rule!r})"
        yield EventText(reason, message, warning=True)


def _lost_and_back(before: DesiredState | None, now: DesiredState) -> Iterator[EventText]:
    """Devices that were lost, and devices that are back. Devices that left the configuration are neither."""
    known = before.lost if before else {}
    lost = []
    for (name, device), loss in now.lost.items():
        last = known.get((name, device))
        if not last or (last.gone, last.health.injected) != (loss.gone, loss.health.injected):
            lost.append(((name, loss.gone, loss.health), device))
    for (name, gone, health), ids in grouped(lost).items():
        if gone:
            yield _about_devices("DeviceLost", name, ids, "gone", warning=True)
        else:
            drill = f" (fault rule {health.injected!r})" if health.injected else ""
            yield _about_devices("DeviceUnhealthy", name, ids, f"unhealthy: {health.reason}{drill}", warning=True)

    resources = now.devices.everything
    not_lost = sorted(known.keys() - now.lost.keys())
    back = grouped(key for key in not_lost if key[0] in resources and key[1] in resources[key[0]].by_device)
    for name, ids in back.items():
        yield _about_devices("DeviceHealthy", name, ids, "healthy again")


def _about_devices(reason: str, resource: str, ids: Iterable[str], what: str, *, warning: bool = False) -> EventText:
    listed = sorted(ids)
    verb = "is" if len(listed) == 1 else "are"
    return EventText(reason, f"{resource}: {named(listed)} {verb} {what}", warning=warning)


def of_situation(before: Situation, now: Situation) -> Iterator[EventText]:
    """Changes of the configuration, of registrations and of fault rules."""
    if now.applied > before.applied:
        yield EventText("ConfigurationApplied", f"configuration applied: {now.reading}")
    if now.refused > before.refused:
        message = f"configuration refused, the last good one stays: {now.reading}"
        yield EventText("ConfigurationRefused", message, warning=True)
    for name, why in now.unregistered.items():
        if name not in before.unregistered:
            message = f"{name} is not registered with the kubelet: {why}"
            yield EventText("ResourceNotRegistered", message, warning=True)
    for name in before.unregistered:
        if name not in now.unregistered:
            yield EventText("ResourceRegistered", f"{name} is registered with the kubelet")
    for name, what in now.active_rules.items():
        if name not in before.active_rules:
            message = f"fault rule {name!r} begins, a drill and no outage: {what}"
            yield EventText("DrillStarted", message, warning=True)
    for name in before.active_rules:
        if name not in now.active_rules:
            yield EventText("DrillEnded", f"fault rule {name!r} is over")
