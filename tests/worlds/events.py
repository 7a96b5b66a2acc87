"""The events of a world, drawn in advance from its seed. They can be written to a file, and single ones left out.

An event is a time, a kind and three numbers. The numbers select among what exists at that time, modulo its count, so a
list still works if some events are left out.
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

KINDS = {  # weights
    "edit": 18,
    "break": 2,
    "mend": 3,
    "plug": 6,
    "probe": 4,
    "pod": 30,
    "finish": 8,
    "delete": 14,
    "kubelet restarts": 4,
    "kubelet crashes": 2,
    "kubelet wiped": 1,
    "kubelet slow": 2,
    "pod resources gone": 1,
    "agent killed": 5,
    "agent ended": 3,
    "agent updated": 2,
    "slow disk": 2,
}
CLAIM_KINDS = {  # additional ones in a world with claims
    "claim pod": 24,
    "claims edited": 8,
    "slices wiped": 2,
    "API away": 3,
}
CLAIMS = 3  # one of so many worlds has claims
PAUSE = 80.0  # seconds between two events, on average


@dataclass(frozen=True, slots=True)
class Event:
    """An event `at` seconds after the start of the world."""

    at: float
    kind: str
    a: int = 0
    b: int = 0
    c: int = 0

    def __str__(self) -> str:
        return f"{self.at:9.3f} {self.kind} {self.a} {self.b} {self.c}"


def has_claims(seed: int) -> bool:
    """Whether the world of a seed has an API server and claims."""
    return seed % CLAIMS == 0


def kinds_of(seed: int) -> Mapping[str, int]:
    """The kinds of events in the world of a seed, with their weights."""
    return {**KINDS, **CLAIM_KINDS} if has_claims(seed) else KINDS


def drawn(dice: random.Random, seconds: float, among: Mapping[str, int] = KINDS) -> tuple[Event, ...]:
    """Draw the events of so many seconds, in bursts with quiet phases in between."""
    kinds, weights = list(among), list(among.values())
    found: list[Event] = []
    moment = 20.0
    while moment < seconds:
        (kind,) = dice.choices(kinds, weights)
        numbers = [dice.randrange(10_000) for _ in range(3)]
        found.append(Event(round(moment, 3), kind, *numbers))
        moment += dice.choice((0.0, 0.01, 0.3, 2.0, 10.0, PAUSE, PAUSE, 3 * PAUSE)) * dice.uniform(0.5, 1.5)
    return tuple(found)


def written(events: Iterable[Event]) -> str:
    """The text of a file with these events, one per line."""
    return "".join(json.dumps([each.at, each.kind, each.a, each.b, each.c]) + "\n" for each in events)


def read(path: Path) -> tuple[Event, ...]:
    """The events of a file."""
    return tuple(Event(*json.loads(line)) for line in path.read_text().splitlines() if line.strip())
