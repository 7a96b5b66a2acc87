"""The table of results: measurements, their budgets and verdicts, and floors or peers for comparison."""

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
    """One measurement in `unit`. `beside` describes the floor or the peer; `budget` is None if there is none."""

    what: str
    measured: float
    unit: str
    budget: float | None = None
    beside: str = ""

    @property
    def verdict(self) -> str:
        """Whether the budget holds, in words; empty without a budget."""
        if self.budget is None:
            return ""
        return "holds" if self.measured <= self.budget else "**missed**"


@dataclass(slots=True)
class Table:
    """The rows of a run. With `quick`, few samples are taken, to check that the benchmarks work."""

    quick: bool = False
    rows: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def some(self, full: int, quick: int) -> int:
        """Return the number of samples that this run takes."""
        return quick if self.quick else full

    def say(self, text: str) -> None:
        """Print progress to stderr."""
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", file=sys.stderr, flush=True)

    def add(
        self, what: str, measured: float, unit: str, budget: float | None = None, beside: str = "", *, most: str = ""
    ) -> None:
        """Add a row. `most` names the statistic of several samples: p50, p99 or worst."""
        row = Row(f"{what}, {most}" if most else what, measured, unit, budget, beside)
        self.rows.append(row)
        self.say(f"{row.what}: {number(measured)} {unit} {row.verdict}")

    def fail(self, group: str, why: str) -> None:
        """Record a group that could not be measured."""
        self.failed.append(f"{group}: {why}")
        self.say(f"{group}: {why}")

    def markdown(self) -> str:
        """Render the table, a summary with the machine, and the groups that could not be measured."""
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
    """Format a number with three significant digits and without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def p99(samples: Sequence[float]) -> float:
    """Return the 99th percentile, which is the worst of fewer than 100 samples."""
    ordered = sorted(samples)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def ratio(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Return the median of the ratios of the rounds' medians.

    The rounds of both sides alternate, so a temporary slowdown of the machine affects both.
    """
    return statistics.median(
        statistics.median(mine) / statistics.median(other) for mine, other in zip(ours, theirs, strict=True)
    )


def flat(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Return the samples of all rounds in one list."""
    return [sample for one in rounds for sample in one]
