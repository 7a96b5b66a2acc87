"""Rules beside those of the configuration: typed by people (`live`), and files in a watched directory.

Each file is a source of its own. A file that changed is read again, a wrong file changes nothing and is reported, and
the rules of a file that is gone end. A directory that cannot be listed changes nothing either; one that is not there is
empty. The directory is for people who have nothing but `kubectl exec`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog

from ..core.model.faults.fault_rules import FaultSpec
from ..core.model.problem import Problem, error
from ..errors import ConfigError, HostError, UsageError, reason_of
from ..hostfs import HostRoot
from .rule_run import RuleRun

log = structlog.get_logger(__name__)

LIVE = "live"
_LIMIT = 4 * 2**20  # bytes of a file that are read
_SUFFIXES = (".yaml", ".yml", ".json")

Parse = Callable[[str, str], FaultSpec]
"""From a text and its name to rules; raises ConfigError."""


class RuleTarget(Protocol):
    """What takes the rules: an engine, or those of many nodes."""

    @property
    def runs(self) -> Mapping[str, RuleRun]:
        """Each rule by its name."""

    def load(self, source: str, faults: FaultSpec) -> None:
        """Replace the rules of a source. Raises UsageError."""

    def clear(self, name: str) -> None:
        """End a rule. Raises UsageError."""


class RuleStore:
    """Live rules and those of `directory` (None: there is none). `parse` checks texts against the configuration."""

    def __init__(self, engine: RuleTarget, parse: Parse, directory: Path | None = None) -> None:
        self.directory = directory
        self.problems: tuple[Problem, ...] = ()
        self._engine = engine
        self._parse = parse
        self._live = FaultSpec()
        self._files: dict[str, str | HostError] = {}

    # --- live ---------------------------------------------------------------------------------------------------------

    def add(self, text: str) -> list[str]:
        """Add the rules of a text; each replaces the live rule of its name. Raises ConfigError or UsageError."""
        new = self._parse(text, "<live>")
        names = [rule.name for rule in new.rules]
        if not names:
            raise UsageError("it contains no rule; expected one such as {name: x, devices: [a/0], health: Unhealthy}")
        others = tuple(rule for rule in self._live.rules if rule.name not in names and self._is_live(rule.name))
        self._load(FaultSpec(seed=new.seed, rules=(*others, *new.rules)))
        return names

    def set_device(
        self, device: str, *, health: str, reason: str = "", seconds: float | None = None, node: str = ""
    ) -> str:
        """Set a device's health by a live rule, for a while or until it is cleared. Returns the rule's name.

        Raises ConfigError or UsageError.
        """
        name = name_of(device, node)
        rule = {"name": name, "devices": {"id": device}, "health": health, "reason": reason}
        if node:
            rule["onNodes"] = [node]
        if seconds is not None:
            rule["for"] = f"{int(seconds * 1000)}ms"
        if name in self._engine.runs:
            self.clear(name)
        return self.add(json.dumps(rule))[0]

    def clear(self, name: str) -> None:
        """End a rule: a live one is forgotten, another one rests until it is triggered or changed.

        Raises UsageError.
        """
        if any(rule.name == name for rule in self._live.rules):
            self._load(replace(self._live, rules=tuple(rule for rule in self._live.rules if rule.name != name)))
        else:
            self._engine.clear(name)

    def _is_live(self, name: str) -> bool:
        """Whether no other source took the name, as the configuration may."""
        run = self._engine.runs.get(name)
        return run is None or run.source == LIVE

    def clear_all(self) -> list[str]:
        """End every rule that could do something; their names."""
        names = [name for name, run in self._engine.runs.items() if run.live]
        for name in names:
            self.clear(name)
        return names

    def _load(self, rules: FaultSpec) -> None:
        self._engine.load(LIVE, rules)
        self._live = rules

    # --- files --------------------------------------------------------------------------------------------------------

    async def scan(self) -> None:
        """Read the directory again."""
        if self.directory is None:
            return
        try:
            texts = await asyncio.to_thread(_read, self.directory)
        except HostError as failed:
            hint = "give --fault-dir a directory of files with fault rules"
            self._report((error("--fault-dir", str(failed), hint),), "fault directory cannot be read; its rules stay")
            return
        problems = []
        for name in self._files.keys() - texts.keys():
            self._engine.load(f"file {name}", FaultSpec())
            log.info("fault file removed", file=name, injected=True)
        for name, text in texts.items():
            path = str(self.directory / name)
            if isinstance(text, HostError):
                problems.append(error(path, str(text)))
                continue
            try:
                rules = self._parse(text, path)
                self._engine.load(f"file {name}", rules)
            except ConfigError as bad:
                problems += [each for each in bad.problems if isinstance(each, Problem)]
            except UsageError as bad:
                problems.append(error(path, str(bad)))
            else:
                if self._files.get(name) != text:
                    log.info("fault file applied", file=name, rules=[rule.name for rule in rules.rules], injected=True)
        self._files = texts
        self._report(tuple(problems), "fault file refused; its last good rules stay")

    def _report(self, problems: tuple[Problem, ...], event: str) -> None:
        if problems and problems != self.problems:
            log.error(event, problems=[str(each) for each in problems])
        self.problems = problems


def name_of(device: str, node: str = "") -> str:
    """The name of the rule by which `vdev device` sets a device; with its node, where there are several."""
    return f"device:{node}/{device}" if node else f"device:{device}"


def _read(directory: Path) -> dict[str, str | HostError]:
    """The text of each of the directory's files, or why it cannot be read. One that vanishes meanwhile counts as gone.

    Raises HostError when the directory cannot be listed.
    """
    texts: dict[str, str | HostError] = {}
    for path in _listed(directory):
        if path.suffix in _SUFFIXES and not path.name.startswith("."):
            try:
                text: str | HostError | None = HostRoot().read_text(str(path), limit=_LIMIT)
            except HostError as failed:
                text = failed
            if text is not None:
                texts[path.name] = text
    return texts


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise HostError(f"{directory} is not a directory") from None
    except OSError as cause:
        raise HostError(f"cannot list {directory}: {reason_of(cause)}") from cause
