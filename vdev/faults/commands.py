"""The commands about fault rules on the control socket, of a node's plugin or of a fleet's controller."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import UsageError
from ..model.device import Slot
from .rule_store import RuleStore, name_of
from .rules import FaultRule, words

Request = Mapping[str, Any]
Command = Callable[[Request], Any]


class FaultCommands:
    """The answers to `vdev fault` and `vdev device`. All commands but the list need permission."""

    def __init__(
        self,
        store: RuleStore,
        *,
        nodes: Callable[[], Mapping[str, Iterable[Slot]]],  # the slots of each node
        is_fleet: bool,  # whether the rule for a device names its node
        status: Callable[[], dict[str, Any]],  # the list of rules
        refusal: str,  # why faults are not allowed, or the empty string
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._is_fleet = is_fleet
        self._status = status
        self._refusal = refusal

    @property
    def by_name(self) -> dict[str, Command]:
        return {
            "fault-list": self._list,
            "fault-add": self._if_allowed(self._add),
            "fault-clear": self._if_allowed(self._clear),
            "fault-trigger": self._if_allowed(self._trigger),
            "device-set": self._if_allowed(self._set_device),
            "device-clear": self._if_allowed(self._clear_device),
        }

    def _if_allowed(self, command: Command) -> Command:
        async def guarded(request: Request) -> Any:
            if self._refusal:
                raise UsageError(self._refusal)
            return command(request)

        return guarded

    async def _list(self, _request: Request) -> dict[str, Any]:
        return self._status()

    def _add(self, request: Request) -> dict[str, Any]:
        return {"added": self._store.add(text_of(request, "rules"))}

    def _clear(self, request: Request) -> dict[str, Any]:
        if request.get("all"):
            return {"cleared": self._store.clear_all()}
        name = text_of(request, "name")
        self._store.clear(name)
        return {"cleared": [name]}

    def _trigger(self, request: Request) -> dict[str, Any]:
        name = text_of(request, "name")
        self._store.trigger(name)
        return {"triggered": name}

    def _set_device(self, request: Request) -> dict[str, Any]:
        node, device = self._device(request)
        name = self._store.set_device(
            device,
            node=node,
            health=text_of(request, "health"),
            reason=str(request.get("reason") or ""),
            lasts=text_of(request, "for") if request.get("for") is not None else "",
        )
        return {"added": [name]}

    def _clear_device(self, request: Request) -> dict[str, Any]:
        node, device = self._device(request)
        name = name_of(device, node)
        if name not in self._store.runs:
            where = f"device {device}" + (f" of node {node}" if node else "")
            raise UsageError(f"nothing is set on {where}; vdev fault list shows all rules")
        self._store.clear(name)
        return {"cleared": [name]}

    def _device(self, request: Request) -> tuple[str, str]:
        """The node and the id of the device in a request, which has its id or <entry>/<index>. Raises UsageError."""
        device, node = text_of(request, "id"), str(request.get("node") or "")
        nodes = self._nodes()
        if node and node not in nodes:
            raise UsageError(f"there is no node {node!r} here")
        ids = {
            name: next(filter(None, (called(slot, device) for slot in slots)), "")
            for name, slots in nodes.items()
            if node in ("", name)
        }
        found = {name: each for name, each in ids.items() if each}
        if not found:
            raise UsageError(f"there is no device {device!r} {f'on node {node}' if node else 'here'}")
        if len(found) > 1:
            raise UsageError(f"{len(found)} nodes have a device {device!r}; say which with --node")
        ((name, own),) = found.items()
        return name if self._is_fleet else "", own


def not_allowed(who: str) -> str:
    """The refusal of a process that runs without --enable-fault-injection."""
    return (
        f"{who} does not allow fault injection; start it with --enable-fault-injection "
        "(env VDEV_ENABLE_FAULT_INJECTION), or write rules under `faults` in its configuration"
    )


def text_of(request: Request, key: str) -> str:
    """The text of a required key. Raises UsageError."""
    value = request.get(key)
    if not isinstance(value, str):
        raise UsageError(f"the request needs a text {key!r}")
    return value


def called(slot: Slot, name: str) -> str:
    """The id of the slot, its device or its whole device, if `name` is that id or <entry>/<index>; else empty."""
    device, raw = slot.device, slot.device.raw
    if name in {slot.id, device.id, raw.id}:
        return name
    if name == device.selector:
        return device.id
    return raw.id if name == f"{raw.entry}/{raw.index}" else ""


def rule_document(
    rule: FaultRule, source: str, state: str, changes_at: float | None, now: float, injected: Counter[str]
) -> dict[str, Any]:
    """The keys of every rule in the list. `injected` counts by resource."""
    return {
        "name": rule.name,
        "kind": rule.kind,
        "source": source,
        "where": rule.where,
        "state": state,
        "changesIn": None if changes_at is None else round(max(0.0, changes_at - now), 3),
        "injected": injected.total(),
        "injectedIn": dict(sorted(injected.items())),
        "what": words(rule),
        "resource": rule.resource,
    }
