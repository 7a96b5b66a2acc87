"""`RuleRun`: the state of one rule on this node, and the combined effect of all active rules on devices.

`schedule` decides when a rule is active, and `targets` which devices it selects. Both are pure; a run keeps what they
take as arguments.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..model.device import Key
from ..planning.resources import Inventory
from . import targets
from .effects import Rpc
from .rules import FaultRule, Start
from .schedule import Activation, Dice, Phase, begins_between, earliest, hits, on_node, phase
from .targets import ActiveFaults

_OVER = Phase(active=False, changes_at=None)


@dataclass(slots=True)
class LoadedRule:
    """A rule that is in force, for all nodes of a process."""

    rule: FaultRule
    source: str
    since: float  # when its times began
    cleared: bool = False


@dataclass(slots=True)
class RuleRun:
    """A rule and its state on one node. Times are seconds of the engine's clock."""

    loaded: LoadedRule
    dice: Dice
    here: bool  # whether the rule is for this node
    activations: tuple[Activation, ...] = ()  # not over yet
    activation_count: int = 0  # also of those that are over
    file_exists: bool | None = None  # the file that the rule waits for; None if it is not known
    active: bool = False
    changes_at: float | None = None
    looked_at: float = -math.inf
    injections: Counter[str] = field(default_factory=Counter)  # how often the rule did something, by resource
    delays: dict[str, float] = field(default_factory=dict)  # of an active rule: when each one ends, by resource
    calls: Counter[object] = field(default_factory=Counter)
    targets: frozenset[Key] = frozenset()

    @property
    def rule(self) -> FaultRule:
        return self.loaded.rule

    @property
    def live(self) -> bool:
        """Whether the rule can do anything on this node."""
        return self.here and not self.loaded.cleared

    def select(self, inventory: Inventory) -> None:
        """Find the devices of this inventory that the rule selects."""
        self.targets = targets.select(self.rule, inventory, self.dice) if self.here else frozenset()

    def activate(self, activation: Activation, now: float) -> None:
        """Start the rule's times once more."""
        ongoing = (each for each in self.activations if phase(self.rule, self.dice, each, now) != _OVER)
        self.activations = (*ongoing, activation)
        self.activation_count += 1
        # Just before now, so that the next look sees an event that is due at exactly this time.
        self.looked_at = math.nextafter(now, -math.inf)

    def saw_file(self, now: float, *, exists: bool) -> bool:
        """Note whether the file that the rule waits for exists. Returns whether that changed."""
        before, self.file_exists = bool(self.file_exists), exists
        if exists == before:
            return False
        if not exists:
            self.activations = ()
        elif hits(self.rule, self.dice, self.activation_count + 1):
            self.activate(Activation(now), now)
        else:
            self.activation_count += 1
        return True

    def look(self, now: float) -> bool:
        """Update `active` and `changes_at`. Returns whether a momentary fault must happen now."""
        rule, before = self.rule, self.active
        phases = [phase(rule, self.dice, activation, now) for activation in self.activations]
        self.active = any(each.active for each in phases)
        self.changes_at = earliest(each.changes_at for each in phases)
        since, self.looked_at = self.looked_at, now
        if not self.active:
            self.delays.clear()
        if rule.momentary:
            return any(begins_between(rule, self.dice, activation, since, now) for activation in self.activations)
        return self.active and not before

    def hit(self, inventory: Inventory, now: float) -> frozenset[Key]:
        """The slots on which the rule acts now; after an Allocate, the whole units of the allocated devices."""
        keys: set[Key] = set()
        for activation in self.activations:
            if phase(self.rule, self.dice, activation, now).active:
                allocated = activation.keys
                keys |= self.targets if allocated is None else targets.widened(allocated, self.rule, inventory)
        return frozenset(keys)

    def counted_hit(self, *what: object) -> int:
        """Count a call, an allocation or a registration. Returns its number, or 0 if the rule does not hit it."""
        self.calls[what] += 1
        number = self.calls[what]
        return number if hits(self.rule, self.dice, number, *what) else 0


def begin(loaded: LoadedRule, dice: Dice, started: float, labels: Mapping[str, str]) -> RuleRun:
    """The run of a rule on a node with these labels; `started` is when the process began."""
    rule, since = loaded.rule, loaded.since
    run = RuleRun(loaded, dice, on_node(rule.nodes, rule.name, dice, labels))
    run.looked_at = math.nextafter(since, -math.inf)  # earlier events are skipped
    if rule.start in (Start.LOAD, Start.START) and not loaded.cleared:
        run.activations = (Activation(since if rule.start is Start.LOAD else started),)
    return run


def active_faults(runs: Collection[RuleRun], inventory: Inventory, now: float) -> ActiveFaults:
    """What all active rules do."""
    if not runs:
        return targets.NONE
    # The kubelet learns at the registration whether to call PreStartContainer, so all rules count, active or not.
    failing = [run.rule for run in runs if run.live and Rpc.PRE_START in run.rule.rpc]
    return ActiveFaults(
        tuple((run.rule, run.hit(inventory, now)) for run in runs if run.live and run.active),
        frozenset(name for name in inventory.resources if any(rule.concerns(name) for rule in failing)),
    )
