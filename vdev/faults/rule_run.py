"""One rule on this node since it was loaded: what set it off, whether it is in force, and how often it did something.

The run is the memory that `faults.schedule` and `faults.targets` take as arguments.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.device import Key
from ..planning.resources import Inventory
from . import targets
from .rules import ALWAYS, FaultRule, Start
from .schedule import Dice, Firing, Phase, earliest, hits, on_node, phase, strikes

_OVER = Phase(active=False, changes_at=None)


@dataclass(slots=True)
class RuleRun:
    """A rule and what happened to it. Times are seconds of the clock that faults go by."""

    rule: FaultRule
    source: str
    dice: Dice
    loaded_at: float
    here: bool  # whether the rule is for this node
    firings: tuple[Firing, ...] = ()
    fired: int = 0
    file_there: bool | None = None  # the file that the rule waits for; None: nobody has looked
    cleared: bool = False
    active: bool = False
    changes_at: float | None = None
    looked_at: float = -math.inf
    injections: Counter[str] = field(default_factory=Counter)  # by resource
    calls: Counter[object] = field(default_factory=Counter)
    targets: frozenset[Key] = frozenset()

    @property
    def live(self) -> bool:
        """Whether it can do anything on this node."""
        return self.here and not self.cleared

    @property
    def injected(self) -> int:
        """How many times it did something; what reaches several resources at once counts for each of them."""
        return self.injections.total()

    def select(self, inventory: Inventory) -> None:
        """Find the slots of this inventory that the rule means."""
        self.targets = targets.select(self.rule, inventory, self.dice) if self.here else frozenset()

    def fire(self, firing: Firing, now: float) -> None:
        """Start the rule's time once more; firings that are over are forgotten."""
        alive = (each for each in self.firings if phase(self.rule, self.dice, each, now) != _OVER)
        self.firings = (*alive, firing)
        self.fired += 1
        self.looked_at = math.nextafter(now, -math.inf)  # an event at this very moment is still to come

    def saw_file(self, now: float, *, there: bool) -> bool:
        """The file that the rule waits for is there, or is not. Whether that changed anything."""
        before, self.file_there = bool(self.file_there), there
        if there == before:
            return False
        if not there:
            self.firings = ()
        elif self.is_hit(self.fired + 1):
            self.fire(Firing(now), now)
        else:
            self.fired += 1
            self.firings = (Firing(now, until=now),)
        return True

    def look(self, now: float) -> bool:
        """Bring `active` and `changes_at` up to now. Whether a momentary fault must happen now."""
        rule, before = self.rule, self.active
        phases = [phase(rule, self.dice, firing, now) for firing in self.firings]
        self.active = any(each.active for each in phases)
        self.changes_at = earliest(each.changes_at for each in phases)
        since, self.looked_at = self.looked_at, now
        if rule.momentary:
            return any(strikes(rule, self.dice, firing, since, now) for firing in self.firings)
        return self.active and not before

    def hit(self, inventory: Inventory, now: float) -> frozenset[Key]:
        """The slots that the active firings mean; an allocated slot's whole unit with it."""
        keys: set[Key] = set()
        for firing in self.firings:
            if phase(self.rule, self.dice, firing, now).active:
                keys |= self.targets if firing.keys is None else targets.widened(firing.keys, self.rule, inventory)
        return frozenset(keys)

    def counted(self, what: object) -> int:
        """The number of this call, allocation or registration, from 1."""
        self.calls[what] += 1
        return self.calls[what]

    def is_hit(self, number: int, *what: object) -> bool:
        return hits(self.rule, self.dice, number, *what)


def begin(rule: FaultRule, source: str, dice: Dice, now: float, started: float, labels: Mapping[str, str]) -> RuleRun:
    """The run of a rule that is loaded now, by a plugin that `started` then, on a node with these labels."""
    run = RuleRun(rule, source, dice, now, on_node(rule.nodes, rule.name, dice, labels))
    if rule.start is Start.LOAD or (rule.start is Start.START and started == now):
        run.firings = (Firing(now),)
    elif rule.start is Start.START:
        run.firings, run.looked_at = (Firing(started),), now  # what would have happened before is past
    return run


def needs_seed(rule: FaultRule) -> bool:
    """Whether another seed makes the rule behave differently."""
    return bool(
        rule.jitter
        or rule.probability < ALWAYS
        or rule.selection.pick is not None
        or rule.selection.share is not None
        or rule.nodes.share < ALWAYS
        or (rule.delay is not None and rule.delay.p50 < rule.delay.max)
    )
