"""All fault rules: of the configuration, of files in the fault directory, and of `vdev fault` (`live`).

They are for the engine of one node, or for those of all nodes of a fleet. The times of a rule count from the same
moment on all nodes, no matter when a node appeared.

Each file is a source. The rules of a file end when it is removed. A file with errors, or a directory that cannot be
listed, is reported and changes nothing. A missing directory counts as empty.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..aio.clock import Clock
from ..errors import ConfigError, HostError, UsageError, reason_of
from ..hostfs import HostRoot
from ..model.names import digest
from ..model.problem import Problem, error
from .engine import Engine
from .rule_run import LoadedRule
from .rules import FaultRule

CONFIGURATION = "configuration"
LIVE = "live"
_LIMIT = 4 * 2**20  # bytes of a file that are read
_LONGEST_NAME = 80  # characters of a rule's name that the schema allows
_SUFFIXES = (".yaml", ".yml", ".json")

Parse = Callable[[str, str], tuple[FaultRule, ...]]
"""Parses a text with the given name. Raises ConfigError."""

Engines = Callable[[], Mapping[str, Engine]]
"""The engines of all nodes, by the node's name."""


class RuleStore:
    """The rules of all sources, in force on the nodes of these engines. `rules` has them by name.

    `directory` is the fault directory; `parse` checks rules against the configuration.
    """

    def __init__(self, engines: Engines, clock: Clock, parse: Parse, directory: Path | None = None) -> None:
        self.directory = directory
        self.engines = engines
        self.rules: Mapping[str, LoadedRule] = {}
        self._clock = clock
        self._parse = parse
        self._configured: tuple[FaultRule, ...] = ()
        self._files: dict[str, tuple[FaultRule, ...]] = {}
        self._live: dict[str, FaultRule] = {}
        self._problems: tuple[Problem, ...] = ()  # of the files' texts

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Rules whose name another source has, and errors of files. Other threads may read it while files change."""
        loaded = self.rules
        taken = (
            error(rule.where, _taken(rule.name, owner))
            for source, rules in self._files.items()
            for rule in rules
            if rule.name in loaded and (owner := loaded[rule.name].source) != source
        )
        return (*self._problems, *taken)

    def configure(self, rules: Iterable[FaultRule]) -> None:
        """Set the rules of the configuration, which replace live ones of the same names.

        They are in force on a node when its engine loads `rules`.
        """
        self._configured = tuple(rules)
        self._collect()

    def _load(self) -> None:
        self._collect()
        for engine in self.engines().values():
            engine.load(self.rules)

    def _collect(self) -> None:
        """Collect the rules of all sources. New and changed ones begin; the others go on.

        Of two rules with one name, the first one counts.
        """
        now: dict[str, LoadedRule] = {}
        for source, rules in {CONFIGURATION: self._configured, **self._files, LIVE: self._live.values()}.items():
            for rule in rules:
                if rule.name in now:
                    continue
                known = self.rules.get(rule.name)
                if known is None or known.rule != rule or known.rule.seed != rule.seed:
                    known = LoadedRule(rule, source, self._clock.now())
                known.rule, known.source = rule, source  # the rule may be equal and have another place in its file
                now[rule.name] = known
        self.rules = now
        self._live = {name: rule for name, rule in self._live.items() if now[name].source == LIVE}

    # --- live ---------------------------------------------------------------------------------------------------------

    def add(self, text: str) -> list[str]:
        """Add rules as live ones. Each replaces the live rule of its name. Raises ConfigError or UsageError."""
        return self._take(self._parse(text, "<live>"))

    def set_device(self, device: str, *, health: str, reason: str = "", lasts: str = "", node: str = "") -> str:
        """Set a device's health with a live rule, for a time or until it is cleared. Returns the rule's name.

        Raises ConfigError or UsageError.
        """
        name = name_of(device, node)
        rule = {"name": name, "devices": {"id": device}, "health": health, "reason": reason}
        if node:
            rule["onNodes"] = [node]
        if lasts:
            rule["for"] = lasts
        new = self._parse(json.dumps(rule), "<live>")
        if name in self._live:
            self.clear(name)  # an equal rule starts again
        return self._take(new)[0]

    def clear(self, name: str) -> None:
        """End a rule. A live rule is deleted; others return when they are triggered or changed. Raises UsageError."""
        rule = self._known(name)
        if self._live.pop(name, None) is not None:
            self._load()
            return
        rule.cleared = True
        for engine in self._with(name):
            engine.clear(name)

    def trigger(self, name: str) -> None:
        """Start a rule's fault now, on every node that the rule is for. Raises UsageError."""
        rule = self._known(name)
        concerned = [engine for engine in self._with(name) if engine.runs[name].here]
        if not concerned:
            raise UsageError(f"the rule {name!r} applies to no node here")
        rule.cleared = False
        for engine in concerned:
            engine.trigger(name)

    def clear_all(self) -> list[str]:
        """End all rules that are not cleared yet. Returns their names."""
        names = [name for name, rule in self.rules.items() if not rule.cleared]
        for name in names:
            self.clear(name)
        return names

    def _known(self, name: str) -> LoadedRule:
        if name not in self.rules:
            known = ", ".join(sorted(self.rules)) or "none"
            raise UsageError(f"there is no fault rule {name!r}; the rules are: {known}")
        return self.rules[name]

    def _with(self, name: str) -> list[Engine]:
        """The engines of the nodes on which the rule is in force."""
        return [engine for engine in self.engines().values() if name in engine.runs]

    def _take(self, new: Sequence[FaultRule]) -> list[str]:
        names = [rule.name for rule in new]
        if not names:
            raise UsageError("it contains no rule; expected one such as {name: x, devices: [a/0], health: Unhealthy}")
        for name in names:
            if name in self.rules and name not in self._live:
                raise UsageError(_taken(name, self.rules[name].source))
        self._live |= {rule.name: rule for rule in new}
        self._load()
        return names

    # --- files --------------------------------------------------------------------------------------------------------

    async def scan(self) -> None:
        """Read the files of the directory again."""
        if self.directory is not None:
            self._files, self._problems = await asyncio.to_thread(self._read, self.directory)
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
                if text is not None:  # else it is gone
                    files[source] = self._parse(text, str(path))
            except HostError as failed:
                problems.append(error(str(path), str(failed)))
                files[source] = self._files.get(source, ())
            except ConfigError as bad:
                problems += bad.problems
                files[source] = self._files.get(source, ())
        return files, tuple(problems)


def _taken(name: str, owner: str) -> str:
    return f"the rule {name!r} exists already, from {owner}; choose another name"


def name_of(device: str, node: str = "") -> str:
    """The name of the rule with which `vdev device` sets a device, with its node in a fleet.

    A long node name, which clouds have, is replaced by its fingerprint.
    """
    name = f"device:{node}/{device}" if node else f"device:{device}"
    return name if len(name) <= _LONGEST_NAME else f"device:{digest(node)}/{device}"
