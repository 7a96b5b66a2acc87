"""Rules beside those of the configuration: typed by people (`live`), and files in a watched directory.

Each file is a source of its own. A file that changed is read again, a wrong file changes nothing and is reported, and
the rules of a file that is gone end. A directory that cannot be listed changes nothing either; one that is not there is
empty. The directory is for people who have nothing but `kubectl exec`.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from ..errors import ConfigError, HostError, UsageError, reason_of
from ..hostfs import HostRoot
from ..model.names import digest
from ..model.problem import Problem, error
from .rule_run import RuleRun
from .rules import FaultRule

log = structlog.get_logger(__name__)

LIVE = "live"
_LIMIT = 4 * 2**20  # bytes of a file that are read
_LONGEST_NAME = 80  # characters of a rule's name that the schema allows
_SUFFIXES = (".yaml", ".yml", ".json")

Parse = Callable[[str, str], tuple[FaultRule, ...]]
"""From a text and its name to rules; raises ConfigError."""


class Rules(Protocol):
    """The rules of a node, or of many."""

    @property
    def runs(self) -> Mapping[str, RuleRun]: ...

    def load(self, source: str, rules: Sequence[FaultRule], /) -> None:
        """Replace the rules of a source. Raises UsageError."""

    def clear(self, name: str) -> None:
        """End a rule. Raises UsageError."""

    def trigger(self, name: str) -> None:
        """Make a rule's fault happen now. Raises UsageError."""


class RuleStore:
    """Live rules and those of `directory` (None: there is none). `parse` checks texts against the configuration."""

    def __init__(self, rules: Rules, parse: Parse, directory: Path | None = None) -> None:
        self.directory = directory
        self.problems: tuple[Problem, ...] = ()
        self.rules = rules
        self._parse = parse
        self._live: tuple[FaultRule, ...] = ()
        self._files: dict[str, str | HostError] = {}

    # --- live ---------------------------------------------------------------------------------------------------------

    def add(self, text: str) -> list[str]:
        """Add the rules of a text; each replaces the live rule of its name. Raises ConfigError or UsageError."""
        return self._take(self._parse(text, "<live>"))

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
            rule["for"] = f"{seconds:.9f}s"
        new = self._parse(json.dumps(rule), "<live>")
        if self._is_live(name):
            self.clear(name)  # for the same again begins anew
        return self._take(new)[0]

    def clear(self, name: str) -> None:
        """End a rule: a live one is forgotten, another one rests until it is triggered or changed.

        Raises UsageError.
        """
        if self._is_live(name):
            self._load(rule for rule in self._live if rule.name != name)
        else:
            self.rules.clear(name)

    def give_way(self, names: Collection[str]) -> None:
        """Forget the live rules of these names, which the configuration has taken."""
        self._live = tuple(rule for rule in self._live if rule.name not in names)

    def _is_live(self, name: str) -> bool:
        return any(rule.name == name for rule in self._live)

    def _take(self, new: Iterable[FaultRule]) -> list[str]:
        names = [rule.name for rule in new]
        if not names:
            raise UsageError("it contains no rule; expected one such as {name: x, devices: [a/0], health: Unhealthy}")
        self._load((*(rule for rule in self._live if rule.name not in names), *new))
        return names

    def clear_all(self) -> list[str]:
        """End every rule that could do something; their names."""
        names = [name for name, run in self.rules.runs.items() if run.live]
        for name in names:
            self.clear(name)
        return names

    def _load(self, rules: Iterable[FaultRule]) -> None:
        live = tuple(rules)
        self.rules.load(LIVE, live)
        self._live = live

    # --- files --------------------------------------------------------------------------------------------------------

    async def scan(self) -> None:
        if self.directory is None:
            return
        try:
            texts = await asyncio.to_thread(_read, self.directory)
        except HostError as failed:
            hint = "give --fault-dir a directory of files with fault rules"
            self._report((error("--fault-dir", str(failed), hint),), "fault directory cannot be read; its rules stay")
            return
        for name in self._files.keys() - texts.keys():
            self.rules.load(_source(name), ())
            log.info("fault file removed", file=name, injected=True)
        found: dict[str, tuple[FaultRule, ...]] = {}
        problems = []
        for name, text in texts.items():
            path = str(self.directory / name)
            if isinstance(text, HostError):
                problems.append(error(path, str(text)))
                continue
            try:
                found[name] = self._parse(text, path)
            except ConfigError as bad:
                problems += [each for each in bad.problems if isinstance(each, Problem)]
        while clash := self._clash(found):
            name, why = clash
            del found[name]
            problems.append(error(str(self.directory / name), why))
        self._replace(found)
        for name, rules in found.items():
            if self._files.get(name) != texts[name]:
                log.info("fault file applied", file=name, rules=[rule.name for rule in rules], injected=True)
        self._files = texts
        self._report(tuple(problems), "fault file refused; its last good rules stay")

    def _clash(self, found: Mapping[str, Sequence[FaultRule]]) -> tuple[str, str] | None:
        """A file with a rule whose name another source has, or keeps, and what to say of it."""
        names = {_source(name): {rule.name for rule in each} for name, each in found.items()}
        runs = self.rules.runs.items()
        owners = {rule: run.source for rule, run in runs if rule in names.get(run.source, (rule,))}
        for name, each in found.items():
            for rule in each:
                owner = owners.setdefault(rule.name, _source(name))
                if owner != _source(name):
                    return name, f"the rule {rule.name!r} exists already, from {owner}; choose another name"
        return None

    def _replace(self, found: Mapping[str, Sequence[FaultRule]]) -> None:
        """Load the rules of these files: first what stays of each, for a rule may have moved from one to another."""
        for name, each in found.items():
            mine = {rule for rule, run in self.rules.runs.items() if run.source == _source(name)}
            self.rules.load(_source(name), [rule for rule in each if rule.name in mine])
        for name, each in found.items():
            self.rules.load(_source(name), each)

    def _report(self, problems: tuple[Problem, ...], event: str) -> None:
        if problems and problems != self.problems:
            log.error(event, problems=[str(each) for each in problems])
        self.problems = problems


def _source(file: str) -> str:
    return f"file {file}"


def name_of(device: str, node: str = "") -> str:
    """The name of the rule by which `vdev device` sets a device; with its node, where there are several.

    A fingerprint stands for a node whose name leaves no room, as those of clouds do.
    """
    name = f"device:{node}/{device}" if node else f"device:{device}"
    return name if len(name) <= _LONGEST_NAME else f"device:{digest(node)}/{device}"


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
