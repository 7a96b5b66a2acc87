"""What people ask of fault rules over the control socket: of the plugin of one node, or of a fleet's controller.

Everything but the list needs permission.
"""

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
    """The answers to `vdev fault` and `vdev device`, by what the control socket calls them.

    `nodes` has the slots of each node; where they are a fleet's, rules that set a device name its node. `status` is the
    list of rules. `refusal` says why people may inject nothing; empty where they may.
    """

    def __init__(
        self,
        store: RuleStore,
        *,
        nodes: Callable[[], Mapping[str, Iterable[Slot]]],
        is_fleet: bool,
        status: Callable[[], dict[str, Any]],
        refusal: str,
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
            "fault-add": self._may(self._add),
            "fault-clear": self._may(self._clear),
            "fault-trigger": self._may(self._trigger),
            "device-set": self._may(self._set_device),
            "device-clear": self._may(self._clear_device),
        }

    def _may(self, command: Command) -> Command:
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
        self._store.rules.trigger(name)
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
        if name not in self._store.rules.runs:
            where = f"device {device}" + (f" of node {node}" if node else "")
            raise UsageError(f"nothing is set on {where}; vdev fault list shows the rules in force")
        self._store.clear(name)
        return {"cleared": [name]}

    def _device(self, request: Request) -> tuple[str, str]:
        """The node and the id of a device that is named by its id or as rules call it. Raises UsageError."""
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
    """Why a process that was not told so takes no faults from people."""
    return (
        f"{who} takes no faults from people; start it with --enable-fault-injection "
        "(env VDEV_ENABLE_FAULT_INJECTION), or write them under `faults` in its configuration"
    )


def text_of(request: Request, key: str) -> str:
    """A text that the request must have. Raises UsageError."""
    value = request.get(key)
    if not isinstance(value, str):
        raise UsageError(f"the request needs a text {key!r}")
    return value


def called(slot: Slot, name: str) -> str:
    """The id of what the name means of a slot: itself, its device, or the whole device, by id or as rules call it."""
    device, raw = slot.device, slot.device.raw
    if name in {slot.id, device.id, raw.id}:
        return name
    if name == device.selector:
        return device.id
    return raw.id if name == f"{raw.entry}/{raw.index}" else ""


def rule_document(
    rule: FaultRule, source: str, state: str, changes_at: float | None, now: float, injected: Counter[str]
) -> dict[str, Any]:
    """What the list says of every rule. `injected` counts by resource."""
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
