"""Failures that people inject into the fleet while it runs, and what all rules do now.

Every node has an engine of its own for the rules. What is typed reaches all, also those of nodes that come later.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .. import config
from ..aio.clock import Clock
from ..core.faults.forecast import words
from ..core.model.faults.fault_rules import FaultRuleSpec, FaultSpec
from ..core.spec import Spec
from ..errors import UsageError
from ..faults.engine import Engine
from ..faults.rule_store import LIVE, name_of
from .member import Member

_SHOWN = 8  # devices of a rule


class FleetFaults:
    """The live rules of a fleet, and the answers to `vdev fault` and `vdev device`."""

    def __init__(self, members: Mapping[str, Member], clock: Clock, *, allowed: bool) -> None:
        self.spec = Spec()
        self._members = members
        self._clock = clock
        self._allowed = allowed
        self._live = FaultSpec()
        self._since = clock.now()

    def meet(self, engine: Engine) -> None:
        """A node has come: what was typed before counts for it as well."""
        if self._live.rules:
            engine.load(LIVE, self._live, at=self._since)

    @property
    def commands(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """What the control socket offers; everything but the list needs permission."""
        return {
            "fault-list": self._asked(lambda _: self.status()),
            "fault-add": self._may(self._add),
            "fault-clear": self._may(self._clear),
            "fault-trigger": self._may(self._trigger),
            "device-set": self._may(self._set_device),
            "device-clear": self._may(self._clear_device),
        }

    def _asked(self, command: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
        async def answered(request: Mapping[str, Any]) -> Any:
            return command(request)

        return answered

    def _may(self, command: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
        def guarded(request: Mapping[str, Any]) -> Any:
            if not self._allowed:
                raise UsageError(
                    "this controller takes no faults from people; start it with --enable-fault-injection, "
                    "or write them under `faults` in its configuration"
                )
            return command(request)

        return self._asked(guarded)

    # --- rules --------------------------------------------------------------------------------------------------------

    def _add(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"added": self._add_rules(_text(request, "rules")), "warnings": []}

    def _add_rules(self, text: str) -> list[str]:
        new = config.load_rules(text, "<live>", self.spec)
        names = [rule.name for rule in new.rules]
        if not names:
            raise UsageError("it contains no rule; expected one such as {name: x, devices: [a/0], health: Unhealthy}")
        others = tuple(rule for rule in self._live.rules if rule.name not in names)
        self._load(FaultSpec(seed=new.seed, rules=(*others, *new.rules)))
        return names

    def _load(self, live: FaultSpec) -> None:
        """In the same moment for all nodes."""
        self._live, self._since = live, self._clock.now()
        for member in self._members.values():
            member.engine.load(LIVE, live, at=self._since)

    def _clear(self, request: Mapping[str, Any]) -> dict[str, Any]:
        known = {name: None for engine in self._engines for name, run in engine.runs.items() if run.live}
        names = list(known) if request.get("all") else [_text(request, "name")]
        for name in names:
            self._clear_rule(name)
        return {"cleared": names}

    def _clear_rule(self, name: str) -> None:
        if any(rule.name == name for rule in self._live.rules):
            self._load(replace(self._live, rules=tuple(rule for rule in self._live.rules if rule.name != name)))
        else:
            self._on_each(name, lambda engine: engine.clear(name))

    def _trigger(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name = _text(request, "name")
        self._on_each(name, lambda engine: engine.trigger(name))
        return {"triggered": name}

    def _on_each(self, name: str, act: Callable[[Engine], None]) -> None:
        """On every node for which the rule is."""
        there = [engine for engine in self._engines if name in engine.runs]
        if not there:
            known = sorted({each for engine in self._engines for each in engine.runs})
            raise UsageError(f"there is no fault rule {name!r}; the rules are: {', '.join(known) or 'none'}")
        for engine in there:
            if engine.runs[name].here:
                act(engine)

    # --- devices ------------------------------------------------------------------------------------------------------

    def _set_device(self, request: Mapping[str, Any]) -> dict[str, Any]:
        node, device = self._device(request)
        rule = {
            "name": name_of(f"{node}/{device}"),
            "onNodes": [node],
            "devices": {"id": device},
            "health": _text(request, "health"),
            "reason": str(request.get("reason") or ""),
        }
        if (seconds := request.get("for")) is not None:
            rule["for"] = f"{int(float(seconds) * 1000)}ms"
        return {"added": self._add_rules(json.dumps(rule))}

    def _clear_device(self, request: Mapping[str, Any]) -> dict[str, Any]:
        node, device = self._device(request)
        name = name_of(f"{node}/{device}")
        if all(rule.name != name for rule in self._live.rules):
            raise UsageError(f"nothing is set on device {device} of node {node}; vdev fault list shows the rules")
        self._clear_rule(name)
        return {"cleared": [name]}

    def _device(self, request: Mapping[str, Any]) -> tuple[str, str]:
        """The node and the id of a device that is named by its id or as rules call it, with its node where several
        have it.
        """
        name, wanted = _text(request, "id"), str(request.get("node") or "")
        if wanted and wanted not in self._members:
            raise UsageError(f"there is no node {wanted!r} in the fleet")
        found = [
            (node, found)
            for node, member in self._members.items()
            if not wanted or node == wanted
            for found in (_identified(member, name),)
            if found
        ]
        if not found:
            raise UsageError(f"there is no device {name!r}" + (f" on node {wanted}" if wanted else " in the fleet"))
        if len(found) > 1:
            raise UsageError(f"{len(found)} nodes have a device {name!r}; say which with --node")
        return found[0]

    # --- what everybody can see ---------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """All rules and what they do on all nodes; as an agent's status has them."""
        rules: dict[str, FaultRuleSpec] = {}
        for engine in self._engines:
            rules |= {name: run.rule for name, run in engine.runs.items()}
        documents = [self._document(name, rule) for name, rule in rules.items()]
        return {
            "enabled": self._allowed,
            "active": sum(each["state"].startswith("active") for each in documents),
            "rules": documents,
        }

    def _document(self, name: str, rule: FaultRuleSpec) -> dict[str, Any]:
        now = self._clock.now()
        runs = {node: run for node, each in self._members.items() if (run := each.engine.runs.get(name)) is not None}
        here = {node: run for node, run in runs.items() if run.live}
        active = {node: run for node, run in here.items() if run.active}
        changes = [run.changes_at for run in here.values() if run.changes_at is not None]
        injected = sum((run.injections for run in runs.values()), Counter[str]())
        devices = [f"{node}/{key[1]}" for node, run in active.items() for key in sorted(run.targets)]
        state = f"active on {len(active)} of {len(here)} nodes" if active else "waiting" if here else "for no node here"
        return {
            "name": name,
            "kind": rule.kind.value,
            "source": next(iter(runs.values())).source,
            "where": rule.where,
            "state": state,
            "changesIn": round(max(0.0, min(changes) - now), 3) if changes else None,
            "injected": injected.total(),
            "injectedIn": dict(sorted(injected.items())),
            "what": words(rule),
            "resource": rule.resource,
            "devices": devices[:_SHOWN],
            "nodes": len(active),
        }

    @property
    def _engines(self) -> list[Engine]:
        return [member.engine for member in self._members.values()]


def _identified(member: Member, name: str) -> str:
    """The id of the node's device that is called so; empty where it has none."""
    for resource in member.plan.base.everything.values() if member.plan else ():
        for slot in resource.slots:
            device, raw = slot.device, slot.device.raw
            if name in (slot.id, device.id, device.selector):
                return slot.id if name == slot.id else device.id
            if name in (raw.id, f"{raw.entry}/{raw.index}"):
                return raw.id
    return ""


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise UsageError(f"the request needs a text {key!r}")
    return value
