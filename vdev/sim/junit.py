"""The results of scenarios as a JUnit file, which CI systems show."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from ..errors import HostError, reason_of
from .scenario_report import ScenarioResult

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot say
_LARGEST_OUTPUT = 100_000  # characters of a plugin's output


def write(path: Path, results: Sequence[ScenarioResult]) -> None:
    """Write the file. Blocks. Raises HostError."""
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
