"""The Events for what happened between two plans."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from ..faults.effects import XidError
from ..faults.xids import APPLICATION_ERRORS, described
from ..model.device import DeviceKey, grouped
from ..model.names import MAX_MESSAGE
from ..planning.repartition import Progress, Progresses, RepartitionState
from ..planning.resources import Inventory
from .losses import Loss, Losses

_NAMED = 8  # ids before the rest is counted


def named(ids: Collection[str]) -> str:
    """List the ids; of many, the first ones and how many more there are."""
    shown = ", ".join(islice(ids, _NAMED))
    return shown + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")


def shortened(text: str, limit: int = MAX_MESSAGE) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the agent knows beside the plan, at one moment."""

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


def of_losses(before: Losses, now: Losses, devices: Inventory) -> tuple[EventText, ...]:
    """Devices that were lost, and devices that are back. Devices that left the configuration are neither."""
    back: dict[str, list[str]] = {}
    for name, device in before.keys() - now.keys():
        resource = devices.everything.get(name)
        if resource is not None and device in resource.by_device:
            back.setdefault(name, []).append(device)
    return (*_lost(before, now), *(_about_devices("DeviceHealthy", name, back[name], "healthy again") for name in back))


def _lost(before: Losses, now: Losses) -> Iterator[EventText]:
    groups = grouped(
        ((name, loss.gone, loss.health), device)
        for (name, device), loss in now.items()
        if not _same(before.get((name, device)), loss)
    )
    for (name, gone, health), ids in groups.items():
        if gone:
            yield _about_devices("DeviceLost", name, ids, "gone", warning=True)
        else:
            drill = f" (fault rule {health.injected!r})" if health.injected else ""
            yield _about_devices("DeviceUnhealthy", name, ids, f"unhealthy: {health.reason}{drill}", warning=True)


def _same(before: Loss | None, now: Loss) -> bool:
    return before is not None and before.gone == now.gone and before.health.injected == now.health.injected


def _about_devices(reason: str, resource: str, ids: Iterable[str], what: str, *, warning: bool = False) -> EventText:
    listed = sorted(ids)
    verb = "is" if len(listed) == 1 else "are"
    return EventText(reason, f"{resource}: {named(listed)} {verb} {what}", warning=warning)


Xids = Mapping[DeviceKey, tuple[XidError, ...]]


def of_xids(before: Xids, now: Xids) -> tuple[EventText, ...]:
    """Devices that have a new Xid."""
    groups = grouped(
        ((name, each), device)
        for (name, device), errors in now.items()
        for each in errors
        if each not in before.get((name, device), ())
    )
    return tuple(_of_xid(name, error, ids) for (name, error), ids in groups.items())


def _of_xid(resource: str, error: XidError, ids: list[str]) -> EventText:
    """Uses the reasons of EKS's node monitoring agent, which writes such Events (its pkg/reasons/reasons.go)."""
    reason = f"NvidiaXID{error.number}{'Warning' if error.number in APPLICATION_ERRORS else 'Error'}"
    message = f"{resource}: {named(sorted(ids))}: {described(error.number)} (fault rule {error.rule!r})"
    return EventText(reason, message, warning=True)


def of_partitions(before: Inventory, now: Inventory) -> tuple[EventText, ...]:
    old, new = _partitions(before), _partitions(now)
    changed = sorted(key for key in old.keys() & new.keys() if old[key] != new[key])
    return tuple(
        EventText("Repartitioned", f"device {key[1]}: {_layout_of(old[key])} -> {_layout_of(new[key])}")
        for key in changed
    )


def _partitions(inventory: Inventory) -> Mapping[tuple[str, str], Counter[str]]:
    """The profiles of the partitions of each device, by entry and raw device; a whole one has one empty profile."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for resource in inventory.resources.values():
        for device in resource.by_device.values():
            found.setdefault((device.raw.entry, device.raw.id), Counter())[device.profile] += 1
    return found


def _layout_of(profiles: Counter[str]) -> str:
    if not any(profiles):
        return "whole"
    return ", ".join(f"{number}x {profile}" for profile, number in sorted(profiles.items()) if profile)


def of_layouts(before: Progresses, now: Progresses) -> tuple[EventText, ...]:
    """Partition layouts that a label of the node chose and that were refused, and why."""
    found = []
    for label, each in now.items():
        last = before.get(label)
        is_known = last and (last.state, last.value, last.sentence) == (each.state, each.value, each.sentence)
        if each.state is RepartitionState.FAILED and not is_known:
            found.append(EventText("RepartitionFailed", f"{_layout(each)} is refused: {each.sentence}", warning=True))
    return tuple(found)


def _layout(progress: Progress) -> str:
    label = progress.label
    return f"the layout for a node without the label {label}" if progress.value is None else f"{label}={progress.value}"


def of_situation(before: Situation, now: Situation) -> tuple[EventText, ...]:
    """Changes of the configuration, of registrations and of fault rules."""
    found: list[EventText] = []
    if now.applied > before.applied:
        found.append(EventText("ConfigurationApplied", f"configuration applied: {now.reading}"))
    if now.refused > before.refused:
        found.append(
            EventText(
                "ConfigurationRefused", f"configuration refused, the last good one stays: {now.reading}", warning=True
            )
        )
    found += [
        EventText("ResourceNotRegistered", f"{name} is not registered with the kubelet: {why}", warning=True)
        for name, why in now.unregistered.items()
        if name not in before.unregistered
    ]
    found += [
        EventText("ResourceRegistered", f"{name} is registered with the kubelet")
        for name in before.unregistered
        if name not in now.unregistered
    ]
    found += [
        EventText("DrillStarted", f"fault rule {name!r} begins, a drill and no outage: {what}", warning=True)
        for name, what in now.active_rules.items()
        if name not in before.active_rules
    ]
    found += [
        EventText("DrillEnded", f"fault rule {name!r} is over")
        for name in before.active_rules
        if name not in now.active_rules
    ]
    return tuple(found)
