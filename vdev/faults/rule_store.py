"""Fault rules of all sources: the configuration, files in the fault directory, and `vdev fault` (`live`).

The rules are for the engine of one node, or for the engines of all nodes of a fleet. The times of a rule count from the
same moment on all nodes, even on a node that was created later.

Each file is a source. The rules of a file end when it is removed. A file with errors, or a directory that cannot be
listed, is reported and changes nothing. A missing directory counts as empty.
"""

import asyncio
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..aio.clock import Clock
from ..errors import ConfigError, HostError, UsageError, reason_of
from ..hostfs import HostRoot
from ..model.names import digest
from ..model.problem import Problem, error
from .engine import Engine, LoadedRule, RuleRun
from .rules import DEVICE, FaultRule, words
from .schedule import Dice, earliest
from .targets import select

CONFIGURATION = "configuration"
LIVE = "live"
_LIMIT = 4 * 2**20  # bytes of a file that are read
_LONGEST_NAME = 80  # characters of a rule's name that the schema allows
_SUFFIXES = (".yaml", ".yml", ".json")
_SHOWN = 8  # devices of a rule in the status of a fleet

Parse = Callable[[str, str], tuple[FaultRule, ...]]
"""Parses a text with the given name. Raises ConfigError."""

Engines = Callable[[], Mapping[str, Engine]]
"""The engines of all nodes, by the node's name."""

Request = Mapping[str, Any]
Command = Callable[[Request], Any]


class RuleStore:
    """Loads the rules of all sources into engines, and answers commands. `rules` has the rules by name."""

    def __init__(
        self,
        engines: Engines,
        clock: Clock,
        parse: Parse,  # checks rules against the configuration
        *,
        owner: str = "this plugin",  # the name of the process in errors
        allowed: bool = True,  # whether commands may change the rules
        directory: Path | None = None,  # the fault directory
        void: Callable[[FaultRule], str] | None = None,  # for a fleet: why a rule has no effect on any node
    ) -> None:
        self.directory = directory
        self.rules: Mapping[str, LoadedRule] = {}
        self._engines = engines
        self._clock = clock
        self._parse = parse
        self._owner = owner
        self._allowed = allowed
        self._void = void
        self._configured: tuple[FaultRule, ...] = ()
        self._files: dict[str, tuple[FaultRule, ...]] = {}
        self._live: dict[str, FaultRule] = {}
        self._errors: tuple[Problem, ...] = ()  # in files
        self.problems: tuple[Problem, ...] = ()  # errors in files, and rules in files whose names are taken

    def configure(self, rules: Iterable[FaultRule]) -> None:
        """Set the rules of the configuration, which replace live ones of the same names.

        They are in force on a node when its engine loads `rules`.
        """
        self._configured = tuple(rules)
        self._collect()

    def _load(self) -> None:
        self._collect()
        for engine in self._engines().values():
            engine.load(self.rules)

    def _collect(self) -> None:
        """Collect the rules of all sources. New and changed rules start; the others continue.

        If several rules have the same name, the first one counts.
        """
        now: dict[str, LoadedRule] = {}
        problems = list(self._errors)
        for source, rules in {CONFIGURATION: self._configured, **self._files, LIVE: self._live.values()}.items():
            for rule in rules:
                if rule.name in now:
                    if source in self._files:
                        problems.append(error(rule.where, _taken(rule.name, now[rule.name].source)))
                    continue
                known = self.rules.get(rule.name)
                if known is None or known.rule != rule:
                    known = LoadedRule(rule, source, self._clock.now())
                known.rule, known.source = rule, source  # an equal rule may have another place in its file
                now[rule.name] = known
        self.rules, self.problems = now, tuple(problems)
        self._live = {name: rule for name, rule in self._live.items() if now[name].source == LIVE}

    # --- commands -----------------------------------------------------------------------------------------------------

    @property
    def commands(self) -> dict[str, Command]:
        """The handlers of `vdev fault` and `vdev device` on the control socket. All except `list` need permission.

        They raise UsageError, and ConfigError for a text that is not a rule.
        """
        answers: dict[str, Callable[[Request], dict[str, Any]]] = {
            "fault-list": lambda _request: self.status(),
            "fault-add": lambda request: {"added": self.add(self._parse(_text(request, "rules"), "<live>"))},
            "fault-clear": self._clear,
            "fault-trigger": lambda request: {"triggered": self.trigger(_text(request, "name"))},
            "device-set": self._set_device,
            "device-clear": self._clear_device,
        }

        async def answer(name: str, request: Request) -> dict[str, Any]:
            if not self._allowed and name != "fault-list":
                raise UsageError(
                    f"{self._owner} does not allow fault injection; start it with --enable-fault-injection "
                    "(env VDEV_ENABLE_FAULT_INJECTION), or write rules under `faults` in its configuration"
                )
            return answers[name](request)

        return {name: functools.partial(answer, name) for name in answers}

    def add(self, new: Sequence[FaultRule]) -> list[str]:
        """Add live rules, and return their names. Each replaces the live rule of its name. Raises UsageError."""
        names = [rule.name for rule in new]
        if not names:
            raise UsageError("it contains no rule; expected one such as {name: x, devices: [a/0], health: Unhealthy}")
        for rule in new:
            if self._void is not None and (why := self._void(rule)):
                raise UsageError(f"the fault rule {rule.name!r} does nothing in a fleet: {why}")
            if rule.name in self.rules and rule.name not in self._live:
                raise UsageError(_taken(rule.name, self.rules[rule.name].source))
        self._live |= {rule.name: rule for rule in new}
        self._load()
        return names

    def clear(self, name: str) -> None:
        """End a rule. A live rule is deleted; others return when they are triggered or changed. Raises UsageError."""
        rule = self._known(name)
        if self._live.pop(name, None) is not None:
            self._load()
            return
        rule.cleared = True
        for engine in self._with(name):
            engine.clear(name)

    def trigger(self, name: str) -> str:
        """Start a rule's fault now, on every node that the rule is for, and return the name. Raises UsageError."""
        rule = self._known(name)
        concerned = [engine for engine in self._with(name) if engine.runs[name].here]
        if not concerned:
            raise UsageError(f"the rule {name!r} matches no node of this process")
        rule.cleared = False
        for engine in concerned:
            engine.trigger(name)
        return name

    def _known(self, name: str) -> LoadedRule:
        if name not in self.rules:
            known = ", ".join(sorted(self.rules)) or "none"
            raise UsageError(f"there is no fault rule {name!r}; the rules are: {known}")
        return self.rules[name]

    def _with(self, name: str) -> list[Engine]:
        """The engines of the nodes on which the rule is in force."""
        return [engine for engine in self._engines().values() if name in engine.runs]

    def _clear(self, request: Request) -> dict[str, Any]:
        if request.get("all"):
            names = [name for name, rule in self.rules.items() if not rule.cleared]
        else:
            names = [_text(request, "name")]
        for name in names:
            self.clear(name)
        return {"cleared": names}

    def _set_device(self, request: Request) -> dict[str, Any]:
        """Set a device's health with a live rule, for a time or until it is cleared."""
        device, node, name = _device(request)
        rule = {
            "name": name,
            "devices": [device],
            "health": _text(request, "health"),
            "reason": str(request.get("reason") or ""),
            **({"onNodes": [node]} if node else {}),
            **({"for": _text(request, "for")} if request.get("for") else {}),
        }
        (new,) = self._parse(json.dumps(rule), "<live>")
        nodes = []
        for each, engine in self._engines().items():
            found = select(new, engine.inventory, Dice(new.seed, each)) if node in ("", each) else ()
            offered = engine.inventory.everything
            devices = {offered[resource].by_id[slot].device.raw.id for resource, slot in found}
            if len(devices) > 1:
                raise UsageError(f"{device!r} matches {len(devices)} devices; give the id of one, or <entry>/<index>")
            if devices:
                nodes.append(each)
        if len(nodes) > 1:
            raise UsageError(f"{len(nodes)} nodes have a device {device!r}; say which with --node")
        if not nodes:
            raise UsageError(f"there is no device {device!r} {f'on node {node}' if node else 'here'}")
        if name in self._live:
            self.clear(name)  # otherwise an equal rule would continue
        return {"added": self.add([new])}

    def _clear_device(self, request: Request) -> dict[str, Any]:
        device, node, name = _device(request)
        if name not in self.rules:
            where = f"device {device}" + (f" of node {node}" if node else "")
            raise UsageError(f"nothing is set on {where}; vdev fault list shows all rules")
        self.clear(name)
        return {"cleared": [name]}

    # --- the status ---------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the state of all rules. The keys are stable and documented."""
        documents = [self._document(rule) for rule in self.rules.values()]
        return {
            "enabled": self._allowed,
            "active": sum(each["state"].startswith("active") for each in documents),
            "rules": documents,
        }

    def _document(self, loaded: LoadedRule) -> dict[str, Any]:
        rule, engines = loaded.rule, self._engines()
        runs = {node: run for node, each in engines.items() if (run := each.runs.get(rule.name)) is not None}
        here = {node: run for node, run in runs.items() if run.live}
        active = {node: run for node, run in here.items() if run.active}
        changes_at = earliest(run.changes_at for run in here.values())
        injected = sum((run.injections for run in runs.values()), Counter[str]())
        document = {
            "name": rule.name,
            "kind": rule.kind,
            "source": loaded.source,
            "where": rule.where,
            "changesIn": None if changes_at is None else round(max(0.0, changes_at - self._clock.now()), 3),
            "injected": injected.total(),
            "injectedIn": dict(sorted(injected.items())),
            "what": words(rule),
            "resource": rule.resource,
        }
        if self._void is None:
            selected = {each for run in runs.values() if run.here for _, each in run.targets}
            devices = sorted(selected) if rule.kind == DEVICE else []
            return {**document, "state": next(map(_state, runs.values()), "waiting"), "devices": devices}
        if self._void(rule):
            return {**document, "state": "does nothing in a fleet", "devices": [], "nodes": 0, "changesIn": None}
        state = f"active on {len(active)} of {len(here)} nodes" if active else "waiting" if here else "for no node here"
        devices = [f"{node}/{key[1]}" for node, run in active.items() for key in sorted(run.targets)]
        return {**document, "state": state, "devices": devices[:_SHOWN], "nodes": len(active)}

    # --- files --------------------------------------------------------------------------------------------------------

    async def scan(self) -> None:
        """Read the files of the directory again."""
        if self.directory is not None:
            found = await asyncio.to_thread(self._read, self.directory)
            if found != (self._files, self._errors):
                self._files, self._errors = found
                self._load()

    def _read(self, directory: Path) -> tuple[dict[str, tuple[FaultRule, ...]], tuple[Problem, ...]]:
        """Read the rules of all files. A file with errors keeps the rules that it had."""
        try:
            paths = sorted(directory.iterdir())
        except FileNotFoundError:
            paths = []
        except OSError as cause:
            hint = "give --fault-dir a directory of files with fault rules"
            return self._files, (error("--fault-dir", f"cannot list {directory}: {reason_of(cause)}", hint),)
        files: dict[str, tuple[FaultRule, ...]] = {}
        problems: list[Problem] = []
        for path in paths:
            if path.suffix not in _SUFFIXES or path.name.startswith("."):
                continue
            source = f"file {path.name}"
            try:
                text = HostRoot().read_text(str(path), limit=_LIMIT)
                if text is not None:  # None: it was removed
                    files[source] = self._parse(text, str(path))
            except (HostError, ConfigError) as bad:
                problems += bad.problems if isinstance(bad, ConfigError) else (error(str(path), str(bad)),)
                files[source] = self._files.get(source, ())
        return files, tuple(problems)


def _taken(name: str, owner: str) -> str:
    return f"the rule {name!r} exists already, from {owner}; choose another name"


def _device(request: Request) -> tuple[str, str, str]:
    """Return the device and the node of a `vdev device` request, and the name of the rule that sets the health.

    In that name, a long node name, as in clouds, is replaced by its fingerprint. Raises UsageError.
    """
    device, node = _text(request, "id"), str(request.get("node") or "")
    name = f"device:{node}/{device}" if node else f"device:{device}"
    return device, node, name if len(name) <= _LONGEST_NAME else f"device:{digest(node)}/{device}"


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
    """Return the text of a required key. Raises UsageError."""
    value = request.get(key)
    if not isinstance(value, str):
        raise UsageError(f"the request needs a string {key!r}")
    return value
