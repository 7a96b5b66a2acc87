"""The table: what was measured, beside what, the budget and whether it holds."""

import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

import vdev


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement in `unit`. `beside` is the floor or the peer in words; `budget` is None where there is none."""

    what: str
    measured: float
    unit: str
    budget: float | None = None
    beside: str = ""

    @property
    def verdict(self) -> str:
        """Whether the budget holds."""
        if self.budget is None:
            return ""
        return "holds" if self.measured <= self.budget else "**missed**"


@dataclass(slots=True)
class Table:
    """The rows of a run. `quick` takes a few samples of each, to see that it works."""

    quick: bool = False
    rows: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def some(self, full: int, quick: int) -> int:
        """How many samples this run takes."""
        return quick if self.quick else full

    def say(self, text: str) -> None:
        """Progress, on stderr."""
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", file=sys.stderr, flush=True)

    def add(
        self, what: str, measured: float, unit: str, budget: float | None = None, beside: str = "", *, most: str = ""
    ) -> None:
        """Add a row. `most` says which of several samples is measured: median, p99, worst."""
        row = Row(f"{what}, {most}" if most else what, measured, unit, budget, beside)
        self.rows.append(row)
        self.say(f"{row.what}: {number(measured)} {unit} {row.verdict}")

    def fail(self, group: str, why: str) -> None:
        """Note a group that could not be measured."""
        self.failed.append(f"{group}: {why}")
        self.say(f"{group}: {why}")

    def markdown(self) -> str:
        """The table, below it what is missing, and the machine."""
        lines = ["| what | measured | budget | verdict | beside |", "|---|--:|--:|---|---|"]
        for row in self.rows:
            budget = "" if row.budget is None else f"≤ {row.budget:g} {row.unit}"
            lines.append(
                f"| {row.what} | {number(row.measured)} {row.unit} | {budget} | {row.verdict} | {row.beside} |"
            )
        judged = [row for row in self.rows if row.budget is not None]
        holding = sum(row.verdict == "holds" for row in judged)
        lines += ["", f"{holding} of {len(judged)} budgets hold. {self._machine()}" if judged else self._machine()]
        lines += [f"Not measured: {each}" for each in self.failed]
        return "\n".join(lines) + "\n"

    def _machine(self) -> str:
        cpu = platform.machine()
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
        seconds = time.monotonic() - self.started
        return (
            f"{'A quick run, no measurement. ' if self.quick else ''}{time.strftime('%Y-%m-%d')}, {seconds:.0f} s on "
            f"{os.cpu_count()} cores of {cpu}, load {os.getloadavg()[0]:.1f} at the end; Linux {platform.release()}, "
            f"Python {platform.python_version()}, grpcio {grpc.__version__}, vdev {vdev.__version__}."
        )


def number(value: float) -> str:
    """Three significant digits, without exponents."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def p99(samples: Sequence[float]) -> float:
    """The 99th percentile. Of fewer than 100 samples it is the worst."""
    ordered = sorted(samples)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def ratio(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """The median over rounds of the ratio of the rounds' medians.

    The rounds of both sides took turns, so what slowed the machine for a while slowed both.
    """
    return statistics.median(
        statistics.median(mine) / statistics.median(other) for mine, other in zip(ours, theirs, strict=True)
    )


def flat(rounds: Sequence[Sequence[float]]) -> list[float]:
    """The samples of all rounds."""
    return [sample for one in rounds for sample in one]
