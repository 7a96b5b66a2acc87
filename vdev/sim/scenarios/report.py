"""Reports of scenario runs: text, JSON lines, and a JUnit file at the end."""

import json
import re
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree as ET

from ...errors import HostError, reason_of
from ..journal import Entry
from .scenario import ScenarioFile


@dataclass
class ScenarioReport:
    """Prints the events of a scenario as they occur, as text or JSON lines, and keeps its result."""

    file: ScenarioFile
    log: Path  # the file with the plugin's output
    out: TextIO
    as_json: bool
    failure: str = ""  # empty if it passed
    failed_step: str = ""  # with its place in the file
    history: Sequence[str] = ()  # the last entries of the journal, which are shown with a failure
    remarks: list[str] = field(default_factory=list)  # findings that do not fail it, and skipped checks
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._step = 1
        self._begun = self._step_begun = time.monotonic()
        file, title, steps = self.file, self.file.scenario.title, len(self.file.scenario.steps)
        document = {"outcome": "began", "title": title, "file": str(file.path), "steps": steps}
        self._print(f"{file.name}: {title}", {"event": "scenario", "scenario": file.name, **document})

    def entry(self, entry: Entry) -> None:
        """Report an entry of the node's journal, in JSON only."""
        self._print(None, entry.document)

    def step(self, failure: str = "") -> None:
        """Report the end of the current step. The next step begins."""
        file, number, now = self.file, self._step, time.monotonic()
        seconds = now - self._step_begun
        line, text = file.lines[number - 1]
        place = f"step {number} of {len(file.lines)}, {file.path}:{line}:" if failure else ""
        self.failed_step = f"{place} {text}" if failure else ""
        document = {"outcome": "failed" if failure else "done", "step": number, "line": line, "text": text}
        self._print(
            f"  {f'✗ {place}' if failure else '✓'} {text}  ({seconds:.1f} s)",
            {"event": "step", "scenario": file.name, **document, "seconds": seconds},
        )
        self._step, self._step_begun = number + 1, now

    def end(self) -> None:
        self.seconds = time.monotonic() - self._begun
        rows = [f"  ! {remark}" for remark in self.remarks]
        if self.failure:
            rows += [textwrap.indent(self.failure, "    "), "    what happened last:"]
            rows += [textwrap.indent(row, "      ") for row in self.history]
            rows.append(f"    the plugin's whole output: {self.log}")
        outcome = "failed" if self.failure else "passed"
        document = {"outcome": outcome, "failure": self.failure, "seconds": self.seconds, "log": str(self.log)}
        self._print("\n".join([*rows, ""]), {"event": "scenario", "scenario": self.file.name, **document})

    def _print(self, text: str | None, document: dict[str, Any]) -> None:
        if (line := json.dumps(document) if self.as_json else text) is not None:
            print(line, file=self.out, flush=True)


def summary(results: Sequence[ScenarioReport]) -> str:
    failed = [each.file.name for each in results if each.failure]
    seconds = sum(each.seconds for each in results)
    played = f"{len(results)} scenario{'' if len(results) == 1 else 's'} in {seconds:.1f} s"
    return f"{played}: {len(failed)} failed ({', '.join(failed)})" if failed else f"{played}: all passed"


_FORBIDDEN = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)  # characters that XML 1.0 does not allow
_LARGEST_OUTPUT = 100_000  # characters of a plugin's output


def write_junit(path: Path, results: Sequence[ScenarioReport]) -> None:
    """Write the results in JUnit's format for CI systems, with one test case per scenario.

    Blocks. Raises HostError.
    """
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
            {
                "classname": "vdev.sim",
                "name": each.file.name,
                "file": _clean(str(each.file.path)),
                "time": f"{each.seconds:.3f}",
            },
        )
        if each.failure:
            first = each.failure.splitlines()[0]
            failure = ET.SubElement(case, "failure", {"message": _clean(first), "type": "failed"})
            failure.text = _clean("\n".join([each.failed_step, each.failure, *each.history]).lstrip())
        output = each.log.read_text(errors="replace")[-_LARGEST_OUTPUT:] if each.log.exists() else ""
        ET.SubElement(case, "system-out").text = _clean("\n".join([*each.remarks, output]))
    ET.indent(root)
    try:
        ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise HostError(f"{path}: cannot write the results: {reason_of(error)}") from error


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
