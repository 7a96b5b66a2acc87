"""The table, for people and for machines."""

import datetime as dt
import json
import math
import os
import platform
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import google.protobuf
import grpc

import vdev

from .compare import Comparison, Verdict
from .row import Rounds, Row, Run
from .stats import Summary

_SAMPLES = re.compile(r"\[[-0-9.e,\s]+\]")  # lists of numbers, which take a line each


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = next((int(line.split()[1]) // 1024 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memoryMiB": memory,
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "protobuf": google.protobuf.__version__,
        "vdev": vdev.__version__,
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def document(run: Run, seconds: float) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "quick": run.quick,
        "seconds": round(seconds),
        "machine": machine(),
        "peer": asdict(run.peer) if run.peer else None,
        "rows": [_for_machines(row) for row in run.rows],
        "skipped": run.skipped,
    }


def _for_machines(row: Row) -> dict[str, Any]:
    """All of a row, its samples to four digits."""
    samples = {name: [[float(f"{each:.4g}") for each in one] for one in rounds] for name, rounds in _rounds(row)}
    return {**asdict(row), **samples, "holds": row.holds}


def _rounds(row: Row) -> list[tuple[str, Rounds]]:
    return [("rounds", row.rounds), ("floor_rounds", row.floor_rounds)]


def as_json(document: dict[str, Any]) -> str:
    """`document` as text."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return _SAMPLES.sub(lambda found: " ".join(found[0].split()), text) + "\n"


def as_markdown(run: Run, seconds: float) -> str:
    """A table for each group, ratios first."""
    about = machine()
    lines = [
        f"{dt.datetime.now(dt.UTC).date().isoformat()}, {round(seconds)} s"
        + (", **quick run: a trial, not a measurement**" if run.quick else ""),
        "",
        _sentence(about),
        "",
    ]
    groups: dict[tuple[str, str], list[Row]] = {}  # a column has one unit
    for row in run.rows:
        groups.setdefault((row.group, row.unit), []).append(row)
    for (group, _), rows in groups.items():
        lines += _table(group, rows)
    budgets = [(row, budget) for row in run.rows for budget in row.budgets]
    missed = [(row, budget) for row, budget in budgets if not budget.holds]
    lines.append(f"{len(budgets) - len(missed)} of {len(budgets)} budgets hold.")
    lines += [f"- missed: {row.group}, {row.what}: {_number(each.judged)} against {each.text}" for row, each in missed]
    lines += [f"- not measured: {each}" for each in run.skipped]
    return "\n".join(lines) + "\n"


def as_comparison(found: Comparison, name: Path) -> str:
    """The verdicts as Markdown: what changed first, then what did not."""
    order = [Verdict.WORSE, Verdict.BETTER, Verdict.SAME]
    counts = Counter(each.verdict for each in found.changes)
    lines = [f"**Compared with {name}**: {', '.join(f'{counts[each]} {each.value}' for each in order)}", ""]
    lines += [f"- not alike: {each}, which may be all the difference" for each in found.doubts]
    lines += ["", "| what | in | before | now | change | 99 of 100 | verdict |", "|---|---|--:|--:|--:|--:|---|"]
    for each in sorted(found.changes, key=lambda each: order.index(each.verdict)):
        change, low, high = (_percent(ratio) for ratio in (each.ratio, each.low, each.high))
        cells = [f"{each.group}: {each.what}", each.unit, _number(each.before), _number(each.now)]
        verdict = f"**{each.verdict.value}**" if each.verdict is not Verdict.SAME else each.verdict.value
        lines.append("| " + " | ".join([*cells, change, f"{low} … {high}", verdict]) + " |")
    lines += ["", *(f"- only {each}" for each in found.alone)]
    return "\n".join(lines).rstrip() + "\n"


def _percent(ratio: float) -> str:
    """By how much a number grew."""
    return f"{(ratio - 1) * 100:+.0f} %" if math.isfinite(ratio) else "from nothing"


def _sentence(about: dict[str, Any]) -> str:
    return (
        f"{about['cores']} cores of {about['cpu']}, {about['memoryMiB']} MiB, Linux {about['kernel']}, "
        f"load {about['load']} at the end; Python {about['python']}, grpcio {about['grpcio']}, "
        f"protobuf {about['protobuf']}, vdev {about['vdev']}"
    )


def _table(group: str, rows: list[Row]) -> list[str]:
    peer = any(row.peer for row in rows)
    unit = rows[0].unit
    head = ["x floor", *(["x peer"] if peer else []), f"median {unit}", f"p99 {unit}", f"floor {unit}"]
    head += [*([f"peer {unit}"] if peer else []), "n", "budget", "holds"]
    lines = [f"**{group}**", "", "| what | " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 2) + "---|---|"]
    for row in rows:
        cells = [_number(row.over_floor), *([_number(row.over_peer)] if peer else [])]
        cells += [_number(row.ours.median), _number(row.ours.p99) if row.ours.count > 1 else "", _median(row.floor)]
        cells += [*([_median(row.peer)] if peer else []), str(row.ours.count)]
        cells += ["; ".join(each.text for each in row.budgets), {None: "", True: "yes", False: "**no**"}[row.holds]]
        lines.append(f"| {row.what} | " + " | ".join(cells) + " |")
    return [*lines, *(f"\n{row.what}: {row.note}." for row in rows if row.note), ""]


def _median(side: Summary | None) -> str:
    return "" if side is None else _number(side.median)


def _number(value: float | None) -> str:
    """Three significant digits, without exponents."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.4f}"
