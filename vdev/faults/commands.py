"""The commands about fault rules on the control socket, of a node's plugin or of a fleet's controller."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UsageError
from ..model.device import Slot
from .rule_run import LoadedRule, RuleRun
from .rule_store import RuleStore, name_of
from .rules import DEVICE, FaultRule, words
from .schedule import earliest

Request = Mapping[str, Any]
Command = Callable[[Request], Any]

_COMMANDS = ("fault-list", "fault-add", "fault-clear", "fault-trigger", "device-set", "device-clear")
_SHOWN = 8  # devices of a rule in the status of a fleet


class FaultCommands:
    """The answers to `vdev fault` and `vdev device`, and the rules in the status.

    All commands but the list need permission (`allowed`); `who` is the process in the refusal. In a fleet, rules can
    be active on several nodes, and `void` says why a rule has no effect on any of them.
    """

    def __init__(
        self, store: RuleStore, who: str, *, allowed: bool, void: Callable[[FaultRule], str] | None = None
    ) -> None:
        self._store = store
        self._who = who
        self._allowed = allowed
        self._void = void
        self._is_fleet = void is not None

    @property
    def by_name(self) -> dict[str, Command]:
        return {name: functools.partial(self._answer, name) for name in _COMMANDS}

    async def _answer(self, command: str, request: Request) -> dict[str, Any]:
        if command == "fault-list":
            return self.status()
        if not self._allowed:
            raise UsageError(
                f"{self._who} does not allow fault injection; start it with --enable-fault-injection "
                "(env VDEV_ENABLE_FAULT_INJECTION), or write rules under `faults` in its configuration"
            )
        match command:
            case "fault-add":
                return {"added": self._store.add(_text(request, "rules"))}
            case "fault-trigger":
                self._store.trigger(_text(request, "name"))
                return {"triggered": request["name"]}
            case "fault-clear" if request.get("all"):
                return {"cleared": self._store.clear_all()}
            case "fault-clear":
                self._store.clear(_text(request, "name"))
                return {"cleared": [request["name"]]}
            case "device-set":
                return {"added": [self._set_device(request)]}
            case _:
                return {"cleared": [self._clear_device(request)]}

    def _set_device(self, request: Request) -> str:
        node, device = self._device(request)
        return self._store.set_device(
            device,
            node=node,
            health=_text(request, "health"),
            reason=str(request.get("reason") or ""),
            lasts=_text(request, "for") if request.get("for") is not None else "",
        )

    def _clear_device(self, request: Request) -> str:
        node, device = self._device(request)
        name = name_of(device, node)
        if name not in self._store.rules:
            where = f"device {device}" + (f" of node {node}" if node else "")
            raise UsageError(f"nothing is set on {where}; vdev fault list shows all rules")
        self._store.clear(name)
        return name

    def _device(self, request: Request) -> tuple[str, str]:
        """The node (in a fleet) and the id of the device that a request names. Raises UsageError."""
        device, node = _text(request, "id"), str(request.get("node") or "")
        engines = self._store.engines()
        if node and node not in engines:
            raise UsageError(f"there is no node {node!r} here")
        found = {
            name: own
            for name, engine in engines.items()
            if node in ("", name)
            for each in engine.inventory.everything.values()
            for slot in each.slots
            if (own := _id_of(slot, device))
        }
        if not found:
            raise UsageError(f"there is no device {device!r} {f'on node {node}' if node else 'here'}")
        if len(found) > 1:
            raise UsageError(f"{len(found)} nodes have a device {device!r}; say which with --node")
        ((name, own),) = found.items()
        return name if self._is_fleet else "", own

    # --- the status ---------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The rules and what they do; the keys are stable and documented."""
        documents = [self._document(rule) for rule in self._store.rules.values()]
        return {
            "enabled": self._allowed,
            "active": sum(each["state"].startswith("active") for each in documents),
            "rules": documents,
        }

    def _document(self, loaded: LoadedRule) -> dict[str, Any]:
        rule, engines = loaded.rule, self._store.engines()
        why = self._void(rule) if self._void is not None else ""
        runs = {node: run for node, each in engines.items() if (run := each.runs.get(rule.name)) is not None}
        here = {} if why else {node: run for node, run in runs.items() if run.live}
        active = {node: run for node, run in here.items() if run.active}
        changes_at = earliest(run.changes_at for run in here.values())
        now = next((each.clock.now() for each in engines.values()), 0.0)
        injected = sum((run.injections for run in runs.values()), Counter[str]())
        document = {
            "name": rule.name,
            "kind": rule.kind,
            "source": loaded.source,
            "where": rule.where,
            "changesIn": None if changes_at is None else round(max(0.0, changes_at - now), 3),
            "injected": injected.total(),
            "injectedIn": dict(sorted(injected.items())),
            "what": words(rule),
            "resource": rule.resource,
        }
        if self._is_fleet:
            state = f"active on {len(active)} of {len(here)} nodes" if active else "waiting" if here else ""
            devices = [f"{node}/{key[1]}" for node, run in active.items() for key in sorted(run.targets)]
            state = "does nothing in a fleet" if why else state or "for no node here"
            return {**document, "state": state, "devices": devices[:_SHOWN], "nodes": len(active)}
        devices = sorted({each for run in runs.values() for _, each in run.targets}) if rule.kind == DEVICE else []
        return {**document, "state": next(map(_state, runs.values()), "waiting"), "devices": devices}


def _state(run: RuleRun) -> str:
    if not run.here:
        return "not for this node"
    if run.loaded.cleared:
        return "cleared"
    if run.active:
        return "active"
    if run.changes_at is not None:
        return "waiting"
    return "waiting for its trigger" if run.rule.triggered else "over"


def _text(request: Request, key: str) -> str:
    """The text of a required key. Raises UsageError."""
    value = request.get(key)
    if not isinstance(value, str):
        raise UsageError(f"the request needs a text {key!r}")
    return value


def _id_of(slot: Slot, name: str) -> str:
    """The id of the slot, its device or its whole device, if `name` is that id or <entry>/<index>; else empty."""
    device, raw = slot.device, slot.device.raw
    if name in {slot.id, device.id, raw.id}:
        return name
    if name == device.selector:
        return device.id
    return raw.id if name == f"{raw.entry}/{raw.index}" else ""
