"""All fault rules: of the configuration, of files in the fault directory, and of `vdev fault` (`live`).

They are for the engine of one node, or for those of all nodes of a fleet. The times of a rule count from the same
moment on all nodes, no matter when a node appeared.

Each file is a source. The rules of a file end when it is removed. A file with errors, or a directory that cannot be
listed, is reported and changes nothing. A missing directory counts as empty.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from ..aio.clock import Clock
from ..errors import ConfigError, HostError, UsageError, reason_of
from ..hostfs import HostRoot
from ..model.names import digest
from ..model.problem import Problem, error
from .engine import Engine
from .rule_run import RuleRun, restarts
from .rules import FaultRule

CONFIGURATION = "configuration"
LIVE = "live"
_LIMIT = 4 * 2**20  # bytes of a file that are read
_LONGEST_NAME = 80  # characters of a rule's name that the schema allows
_SUFFIXES = (".yaml", ".yml", ".json")

Parse = Callable[[str, str], tuple[FaultRule, ...]]
"""Parses a text with the given name. Raises ConfigError."""


Sources = Mapping[str, Sequence[FaultRule]]
"""Rules by source. Of two rules with one name, the first counts."""


class RuleStore:
    """The rules of all sources, for these engines.

    `directory` is the fault directory; `parse` checks rules against the configuration.
    """

    def __init__(
        self, engines: Callable[[], Collection[Engine]], clock: Clock, parse: Parse, directory: Path | None = None
    ) -> None:
        self.directory = directory
        self._engines = engines
        self._clock = clock
        self._parse = parse
        self._configured: tuple[FaultRule, ...] = ()
        self._files: dict[str, tuple[FaultRule, ...]] = {}
        self._live: dict[str, FaultRule] = {}
        self._problems: tuple[Problem, ...] = ()  # of the files' texts
        self._rules: dict[str, FaultRule] = {}  # by name, from all sources
        self._since: dict[str, float] = {}  # when the times of each rule began
        self._cleared: set[str] = set()

    @property
    def runs(self) -> Mapping[str, RuleRun]:
        """Each rule with its state on one node, if possible one that the rule is for."""
        found: dict[str, RuleRun] = {}
        for engine in self._engines():
            found |= {name: run for name, run in engine.runs.items() if run.live or name not in found}
        return found

    @property
    def sources(self) -> Sources:
        return {CONFIGURATION: self._configured, **self._files, LIVE: tuple(self._live.values())}

    @property
    def problems(self) -> tuple[Problem, ...]:
        taken = (
            error(rule.where, _taken(rule.name, owner))
            for source, rules in self._files.items()
            for rule in rules
            if (owner := self._owner(rule.name)) != source
        )
        return (*self._problems, *taken)

    def configure(self, rules: Iterable[FaultRule]) -> None:
        """Set the rules of the configuration, which replace live ones of the same names. Then call `load_into`."""
        self._configured = tuple(rules)
        self._note()

    def load_into(self, engine: Engine) -> None:
        """Put all rules in force on a node. A rule that was cleared on the others stays cleared."""
        engine.load(self.sources, since=self._since)
        for name, run in engine.runs.items():
            if name in self._cleared and not run.cleared:
                engine.clear(name)

    def _load(self) -> None:
        self._note()
        for engine in self._engines():
            engine.load(self.sources, since=self._since)

    def _note(self) -> None:
        """Note which rules there are now. New and changed ones begin; the others go on."""
        self._live = {name: rule for name, rule in self._live.items() if self._owner(name) == LIVE}
        before, self._rules = self._rules, {}
        for rules in self.sources.values():
            for rule in rules:
                self._rules.setdefault(rule.name, rule)
        for name, rule in self._rules.items():
            if name not in before or restarts(before[name], rule):
                self._since[name] = self._clock.now()
                self._cleared.discard(name)
        self._since = {name: self._since[name] for name in self._rules}

    def _owner(self, name: str) -> str:
        """The first source with a rule of that name, or the empty string."""
        return next((source for source, rules in self.sources.items() if any(each.name == name for each in rules)), "")

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
        if self._live.pop(name, None) is not None:
            self._load()
            return
        for engine in self._with(name):
            engine.clear(name)
        self._cleared.add(name)

    def trigger(self, name: str) -> None:
        """Start a rule's fault now, on every node that the rule is for. Raises UsageError."""
        concerned = [engine for engine in self._with(name) if engine.runs[name].here]
        if not concerned:
            raise UsageError(f"the rule {name!r} applies to no node here")
        for engine in concerned:
            engine.trigger(name)
        self._cleared.discard(name)

    def _with(self, name: str) -> list[Engine]:
        found = [engine for engine in self._engines() if name in engine.runs]
        if not found:
            known = ", ".join(sorted(self.runs)) or "none"
            raise UsageError(f"there is no fault rule {name!r}; the rules are: {known}")
        return found

    def clear_all(self) -> list[str]:
        """End all rules that are not cleared yet. Returns their names."""
        names = [name for name, run in self.runs.items() if run.live]
        for name in names:
            self.clear(name)
        return names

    def _take(self, new: Sequence[FaultRule]) -> list[str]:
        names = [rule.name for rule in new]
        if not names:
            raise UsageError("it contains no rule; expected one such as {name: x, devices: [a/0], health: Unhealthy}")
        for name in names:
            if (owner := self._owner(name)) not in ("", LIVE):
                raise UsageError(_taken(name, owner))
        self._live |= {rule.name: rule for rule in new}
        self._load()
        return names

    # --- files --------------------------------------------------------------------------------------------------------

    async def scan(self) -> None:
        """Read the files of the directory again."""
        if self.directory is None:
            return
        try:
            texts = await asyncio.to_thread(_read, self.directory)
        except HostError as failed:
            hint = "give --fault-dir a directory of files with fault rules"
            self._problems = (error("--fault-dir", str(failed), hint),)
            return
        files: dict[str, tuple[FaultRule, ...]] = {}
        problems: list[Problem] = []
        for name, text in texts.items():
            path, source = str(self.directory / name), f"file {name}"
            files[source] = self._files.get(source, ())
            if isinstance(text, HostError):
                problems.append(error(path, str(text)))
                continue
            try:
                files[source] = self._parse(text, path)
            except ConfigError as bad:
                problems += bad.problems
        self._files, self._problems = files, tuple(problems)
        self._load()


def _taken(name: str, owner: str) -> str:
    return f"the rule {name!r} exists already, from {owner}; choose another name"


def name_of(device: str, node: str = "") -> str:
    """The name of the rule with which `vdev device` sets a device, with its node in a fleet.

    A long node name, which clouds have, is replaced by its fingerprint.
    """
    name = f"device:{node}/{device}" if node else f"device:{device}"
    return name if len(name) <= _LONGEST_NAME else f"device:{digest(node)}/{device}"


def _read(directory: Path) -> dict[str, str | HostError]:
    """The text of each file in the directory, or the error of reading it. Raises HostError if it cannot be listed."""
    try:
        paths = sorted(directory.iterdir())
    except FileNotFoundError:
        return {}
    except OSError as cause:
        raise HostError(f"cannot list {directory}: {reason_of(cause)}") from cause
    texts: dict[str, str | HostError] = {}
    for path in paths:
        if path.suffix in _SUFFIXES and not path.name.startswith("."):
            try:
                text: str | HostError | None = HostRoot().read_text(str(path), limit=_LIMIT)
            except HostError as failed:
                text = failed
            if text is not None:
                texts[path.name] = text
    return texts
