"""What is said about scenarios: text for people, a JSON object per line for programs, and a JUnit file at the end."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree as ET

from ..errors import HostError, reason_of
from .journal import Entry
from .scenarios.scenario import Scenario

_INDENT = "      "


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """How a scenario ended. `failure` is empty if it came true; `history` are the last things that happened before it
    failed, `remarks` what was found and does not count, `log` the plugin's output.
    """

    name: str
    file: str
    seconds: float
    failure: str
    history: Sequence[str]
    remarks: Sequence[str]
    log: Path


class ScenarioReport:
    """Told of everything as it happens; must not block."""

    def begin(self, name: str, path: Path, scenario: Scenario) -> None:
        """A scenario begins."""

    def entry(self, entry: Entry) -> None:
        """Something happened on the node."""

    def waits(self, number: int, seconds: float) -> None:
        """A step is not done yet."""

    def step(self, number: int, seconds: float, failure: str = "") -> None:
        """A step was done, or failed."""

    def end(self, result: ScenarioResult) -> None:
        """A scenario ended."""

    def summary(self, results: Sequence[ScenarioResult], left_out: Sequence[str] = ()) -> None:
        """All have ended."""


class TextReport(ScenarioReport):
    """For people: each step as it is done, and of a failure everything that helps."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._path = Path()
        self._scenario: Scenario | None = None

    def begin(self, name: str, path: Path, scenario: Scenario) -> None:
        self._path, self._scenario = path, scenario
        self._say(f"{name}: {scenario.title}")

    def waits(self, number: int, seconds: float) -> None:
        assert self._scenario is not None
        _, text = self._scenario.lines[number - 1]
        self._say(f"  … step {number} of {len(self._scenario.steps)} waits: {text}  ({seconds:.0f} s)")

    def step(self, number: int, seconds: float, failure: str = "") -> None:
        assert self._scenario is not None
        line, text = self._scenario.lines[number - 1]
        mark = "✗" if failure else "✓"
        where = f"step {number} of {len(self._scenario.steps)}, {self._path}:{line}: " if failure else ""
        self._say(f"  {mark} {where}{text}  ({seconds:.1f} s)")

    def end(self, result: ScenarioResult) -> None:
        for remark in result.remarks:
            self._say(f"  ! {remark}")
        if result.failure:
            self._say("    " + result.failure.replace("\n", "\n    "))
            if result.history:
                self._say("    what happened last:")
                for row in result.history:
                    self._say(_INDENT + row.replace("\n", f"\n{_INDENT}"))
            self._say(f"    the plugin's whole output: {result.log}")
        self._say("")

    def summary(self, results: Sequence[ScenarioResult], left_out: Sequence[str] = ()) -> None:
        failed = [each.name for each in results if each.failure]
        seconds = sum(each.seconds for each in results)
        played = f"{len(results)} scenario{'' if len(results) == 1 else 's'} in {seconds:.1f} s"
        self._say(f"{played}: {len(failed)} failed ({', '.join(failed)})" if failed else f"{played}: all came true")
        for each in left_out:
            self._say(f"not played: {each}")

    def _say(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()


class JsonReport(ScenarioReport):
    """For programs: the events of `vdev sim`, and between them those of scenarios and steps."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._name = ""
        self._scenario: Scenario | None = None

    def begin(self, name: str, path: Path, scenario: Scenario) -> None:
        """A scenario begins, on a node of its own."""
        self._name, self._scenario = name, scenario
        about = {"title": scenario.title, "file": str(path), "steps": len(scenario.steps)}
        self._put({"event": "scenario", **self._of("began"), **about})

    def entry(self, entry: Entry) -> None:
        self._put(entry.document)

    def step(self, number: int, seconds: float, failure: str = "") -> None:
        assert self._scenario is not None
        line, text = self._scenario.lines[number - 1]
        outcome = self._of("failed" if failure else "done")
        self._put({"event": "step", **outcome, "step": number, "line": line, "text": text, "seconds": seconds})

    def end(self, result: ScenarioResult) -> None:
        outcome = self._of("failed" if result.failure else "passed")
        rest = {"failure": result.failure, "seconds": result.seconds, "log": str(result.log)}
        self._put({"event": "scenario", **outcome, **rest})

    def _of(self, outcome: str) -> dict[str, str]:
        return {"scenario": self._name, "outcome": outcome}

    def _put(self, document: dict[str, object]) -> None:
        self._out.write(json.dumps(document) + "\n")
        self._out.flush()


_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot say
_LARGEST_OUTPUT = 100_000  # characters of a plugin's output


def write_junit(path: Path, results: Sequence[ScenarioResult]) -> None:
    """Write the results as a JUnit file, which CI systems show. Blocks. Raises HostError."""
    try:
        path.write_bytes(document(results))
    except OSError as error:
        raise HostError(f"{path}: cannot write the results: {reason_of(error)}") from error


def document(results: Sequence[ScenarioResult]) -> bytes:
    """One test case for each scenario. Blocks: it reads the plugins' output."""
    totals = {
        "tests": str(len(results)),
        "failures": str(sum(bool(each.failure) for each in results)),
        "errors": "0",
        "skipped": "0",
        "time": f"{sum(each.seconds for each in results):.3f}",
    }
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", {"name": "vdev sim", **totals})
    for each in results:
        case = ET.SubElement(
            suite,
            "testcase",
            {"classname": "vdev.sim", "name": each.name, "file": _clean(each.file), "time": f"{each.seconds:.3f}"},
        )
        if each.failure:
            first = each.failure.splitlines()[0]
            failure = ET.SubElement(case, "failure", {"message": _clean(first), "type": "failed"})
            failure.text = _clean("\n".join([each.failure, *each.history]))
        output = each.log.read_text(errors="replace")[-_LARGEST_OUTPUT:] if each.log.exists() else ""
        ET.SubElement(case, "system-out").text = _clean("\n".join([*each.remarks, output]))
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
