"""What people ask of fault rules over the control socket: of the plugin of one node, or of a fleet's controller.

Everything but the list needs permission.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..aio.clock import Clock
from ..core.faults.words import words
from ..core.model.device import Slot
from ..core.model.faults.fault_rules import FaultRuleSpec
from ..core.spec import Spec
from ..errors import UsageError
from .rule_run import RuleRun
from .rule_store import Parse, RuleStore, name_of

Request = Mapping[str, Any]
Command = Callable[[Request], Any]

_LONGEST = 1e9  # seconds that a device can be set for: 30 years


class Rules(Protocol):
    """The rules of a node, or of many."""

    @property
    def clock(self) -> Clock:
        """The time that they go by."""

    @property
    def runs(self) -> Mapping[str, RuleRun]:
        """Each rule by its name."""

    def trigger(self, name: str) -> None:
        """Make a rule's fault happen now. Raises UsageError."""


class Place(Protocol):
    """Whose rules these are."""

    spec: Spec

    @property
    def refusal(self) -> str:
        """Why people may inject nothing now; empty where they may."""

    def find(self, device: str, node: str) -> tuple[str, str]:
        """The node (empty: there is but one) and the id of a device, by its id or as rules call it. Raises
        UsageError.
        """

    def status(self) -> dict[str, Any]:
        """The rules and what they do; keys are stable and documented."""


class FaultCommands:
    """The answers to `vdev fault` and `vdev device`."""

    def __init__(self, place: Place, rules: Rules, store: RuleStore, parse: Parse) -> None:
        self._place = place
        self._rules = rules
        self._store = store
        self._parse = parse

    @property
    def by_name(self) -> dict[str, Command]:
        """What the control socket offers."""
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
            if why := self._place.refusal:
                raise UsageError(why)
            return command(request)

        return guarded

    async def _list(self, _request: Request) -> dict[str, Any]:
        return self._place.status()

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
        self._rules.trigger(name)
        return {"triggered": name}

    def _set_device(self, request: Request) -> dict[str, Any]:
        node, device = self._device(request)
        name = self._store.set_device(
            device,
            node=node,
            health=text_of(request, "health"),
            reason=str(request.get("reason") or ""),
            seconds=_seconds(request, "for"),
        )
        return {"added": [name]}

    def _clear_device(self, request: Request) -> dict[str, Any]:
        node, device = self._device(request)
        name = name_of(device, node)
        if name not in self._rules.runs:
            where = f"device {device}" + (f" of node {node}" if node else "")
            raise UsageError(f"nothing is set on {where}; vdev fault list shows the rules in force")
        self._store.clear(name)
        return {"cleared": [name]}

    def _device(self, request: Request) -> tuple[str, str]:
        return self._place.find(text_of(request, "id"), str(request.get("node") or ""))


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


def _seconds(request: Request, key: str) -> float | None:
    value = request.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST:
        raise UsageError(f"{key!r} in the request must be a number of seconds, more than 0 and at most {_LONGEST:.0f}")
    return float(value)


def rule_document(
    rule: FaultRuleSpec, source: str, state: str, changes_at: float | None, now: float, injected: Counter[str]
) -> dict[str, Any]:
    """What the list says of every rule. `injected` counts by resource."""
    return {
        "name": rule.name,
        "kind": rule.kind.value,
        "source": source,
        "where": rule.where,
        "state": state,
        "changesIn": None if changes_at is None else round(max(0.0, changes_at - now), 3),
        "injected": injected.total(),
        "injectedIn": dict(sorted(injected.items())),
        "what": words(rule),
        "resource": rule.resource,
    }
