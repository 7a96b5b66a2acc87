"""What is measured, as values: a row of the table, and what all measurements share."""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .stats import Summary, difference, ratio, summary


@dataclass(frozen=True, slots=True)
class Row:
    """One line: ours in `unit`, the same of the floor and of the peer in the same run, and the budget.

    `over_floor` and `over_peer` are ratios of medians over interleaved rounds. `judged` is the number that the budget
    speaks of; `note` says what a reader must know.
    """

    group: str
    what: str
    unit: str
    ours: Summary
    floor: Summary | None = None
    over_floor: float | None = None
    peer: Summary | None = None
    over_peer: float | None = None
    budget: str = ""
    limit: float | None = None
    judged: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the budget is kept; None where there is none."""
        return None if self.limit is None or self.judged is None else self.judged <= self.limit


@dataclass(frozen=True, slots=True)
class Peer:
    """Another device plugin: its command line, with `{kubelet_dir}` and `{plugin_dir}` filled in, and its resource."""

    command: str
    resource: str


@dataclass(slots=True)
class Run:
    """One run of the benchmark. `quick` takes a few samples of each, to see that it works."""

    quick: bool = False
    peer: Peer | None = None
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def some(self, full: int, quick: int) -> int:
        """How many of something this run takes."""
        return quick if self.quick else full

    def say(self, text: str) -> None:
        """Progress, on stderr."""
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", file=sys.stderr, flush=True)

    def skip(self, what: str, why: str) -> None:
        """Note what could not be measured here."""
        self.say(f"{what}: skipped, {why}")
        self.skipped.append(f"{what}: {why}")

    def add(self, row: Row) -> None:
        """Keep a row."""
        floor = f", {row.over_floor:.2f} x floor" if row.over_floor is not None else ""
        peer = f", {row.over_peer:.2f} x peer" if row.over_peer is not None else ""
        self.say(f"{row.group}: {row.what}: {row.ours.median:.4g} {row.unit} (p99 {row.ours.p99:.4g}){floor}{peer}")
        self.rows.append(row)


Rounds = Sequence[Sequence[float]]


def scaled(rounds: Rounds, factor: float) -> Summary:
    """All rounds together, in another unit."""
    return summary([each * factor for one in rounds for each in one])


def timed(
    group: str,
    what: str,
    ours: Rounds,
    floor: Rounds | None = None,
    peer: Rounds | None = None,
    *,
    unit: str = "ms",
    ratio_limit: float | None = None,
    over_limit: float | None = None,
    p99_limit: float | None = None,
    median_limit: float | None = None,
    note: str = "",
) -> Row:
    """A row of durations (in seconds, shown in `unit`), with at most one kind of limit, in that unit."""
    factor = {"ms": 1e3, "us": 1e6, "s": 1.0}[unit]
    total = scaled(ours, factor)
    over = ratio(ours, floor) if floor else None
    budget, limit, judged = "", None, None
    if ratio_limit is not None:
        budget, limit, judged = f"≤ {ratio_limit:g} x floor", ratio_limit, over
    elif over_limit is not None and floor:
        budget, limit, judged = f"≤ {over_limit:g} {unit} over floor", over_limit, difference(ours, floor) * factor
    elif p99_limit is not None:
        budget, limit, judged = f"p99 ≤ {p99_limit:g} {unit}", p99_limit, total.p99
    elif median_limit is not None:
        budget, limit, judged = f"median ≤ {median_limit:g} {unit}", median_limit, total.median
    return Row(
        group,
        what,
        unit,
        total,
        scaled(floor, factor) if floor else None,
        over,
        scaled(peer, factor) if peer else None,
        ratio(ours, peer) if peer else None,
        budget,
        limit,
        judged,
        note,
    )


def sized(  # noqa: PLR0917 - read like the table's columns
    group: str, what: str, unit: str, ours: float, floor: float | None, peer: float | None, limit: float | None = None
) -> Row:
    """A row of one number per side: memory, threads, CPU seconds."""

    def once(value: float | None) -> Summary | None:
        return None if value is None else Summary(value, value, value, 1)

    return Row(
        group,
        what,
        unit,
        summary([ours]),
        once(floor),
        ours / floor if floor else None,
        once(peer),
        ours / peer if peer else None,
        f"≤ {limit:g} {unit}" if limit is not None else "",
        limit,
        ours if limit is not None else None,
    )


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)
