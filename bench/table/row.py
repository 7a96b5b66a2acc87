"""What is measured, as values: a row of the table, and what all measurements share."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .stats import Summary, difference, ratio, summary, tail_ratio


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit, the number that it speaks of, and how both are said."""

    text: str
    limit: float
    judged: float

    @property
    def holds(self) -> bool:
        """Whether it is kept."""
        return self.judged <= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """One line: ours in `unit`, the same of the floor and of the peer in the same run, and the budgets.

    `over_floor` and `over_peer` are ratios of medians over interleaved rounds. `note` says what a reader must know.
    `rounds` and `floor_rounds` have every sample, in `unit`, for a comparison with another run.
    """

    group: str
    what: str
    unit: str
    ours: Summary
    floor: Summary | None = None
    over_floor: float | None = None
    peer: Summary | None = None
    over_peer: float | None = None
    budgets: tuple[Budget, ...] = ()
    note: str = ""
    rounds: Sequence[Sequence[float]] = ()
    floor_rounds: Sequence[Sequence[float]] = ()

    @property
    def holds(self) -> bool | None:
        """Whether all budgets are kept; None where there is none."""
        return all(each.holds for each in self.budgets) if self.budgets else None


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
    tail_limit: float | None = None,
    worst_limit: float | None = None,
    p99_limit: float | None = None,
    median_limit: float | None = None,
    note: str = "",
) -> Row:
    """A row of durations (in seconds, shown in `unit`).

    Budgets over the floor: `ratio_limit` and `over_limit` (in `unit`) of the medians, `tail_limit` of the 99th
    percentiles. In `unit`: `median_limit`, `p99_limit` and `worst_limit`.
    """
    factor = {"ms": 1e3, "us": 1e6, "s": 1.0}[unit]
    mine = _scaled(ours, factor)
    floors = _scaled(floor, factor) if floor else None
    total = _all(mine)
    over = ratio(mine, floors) if floors else None
    budgets: list[Budget] = []

    def judge(text: str, limit: float | None, judged: float | None) -> None:
        if limit is not None and judged is not None:
            budgets.append(Budget(text.format(f"{limit:g}"), limit, judged))

    judge("≤ {} x floor", ratio_limit, over)
    judge(f"≤ {{}} {unit} over floor", over_limit, difference(mine, floors) if floors else None)
    judge("p99 ≤ {} x floor", tail_limit, tail_ratio(mine, floors) if floors else None)
    judge(f"p99 ≤ {{}} {unit}", p99_limit, total.p99)
    judge(f"worst ≤ {{}} {unit}", worst_limit, total.worst)
    judge(f"median ≤ {{}} {unit}", median_limit, total.median)
    return Row(
        group,
        what,
        unit,
        total,
        _all(floors) if floors else None,
        over,
        _all(_scaled(peer, factor)) if peer else None,
        ratio(ours, peer) if peer else None,
        tuple(budgets),
        note,
        mine,
        floors or (),
    )


def sized(
    group: str,
    what: str,
    unit: str,
    ours: float,
    floor: float | None,
    peer: float | None,
    limit: float | None = None,
    *,
    note: str = "",
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
        (Budget(f"≤ {limit:g} {unit}", limit, ours),) if limit is not None else (),
        note,
        ((ours,),),
        ((floor,),) if floor is not None else (),
    )


def _scaled(rounds: Rounds, factor: float) -> list[list[float]]:
    """The rounds in another unit."""
    return [[each * factor for each in one] for one in rounds]


def _all(rounds: Rounds) -> Summary:
    """All rounds together."""
    return summary([each for one in rounds for each in one])
