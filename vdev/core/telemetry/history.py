"""What drove a device since when, and what its counters come to by that.

A `Drive` is what drives a device for a while: its loads, what fails, whether it is there. A `History` is a list of them
with what was counted when each began. Counters at any instant are what was counted at the last change, and a formula's
integral since. Nothing depends on who reads them how often, and a process that was handed the history reads on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..model.telemetry import Physics
from .shapes import NO_LOAD, Load, Part, level, total

_HUNDRED = 100.0
_STEADY_PART = 0.632  # of a step is there after the thermal time constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a device counts by itself, a second."""

    corrected: float = 0.0
    uncorrected: float = 0.0
    replays: float = 0.0
    remapped: float = 0.0


NO_RATES = Rates()


@dataclass(frozen=True, slots=True)
class Heat:
    """The device comes to the temperature `to` (°C) within so many seconds, whatever its load."""

    to: float
    within: float


@dataclass(frozen=True, slots=True)
class Share:
    """A load on a part of the device's compute: 1 is all of it. `memory` is what the part has, in bytes.

    `pods` are those that hold it, by name.
    """

    of: float
    load: Load = NO_LOAD
    memory: int = 0
    pods: frozenset[str] = frozenset()


WHOLE = ""
"""The name of the only share of a device that is not cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """What drives a device: its loads by partition (`WHOLE` where it is not cut), and what is wrong with it.

    `xids` are the errors of NVIDIA's driver that it has, `lost`: it has fallen off the bus. `there`: it is plugged in.
    """

    physics: Physics
    shares: Mapping[str, Share] = field(default_factory=lambda: MappingProxyType({WHOLE: Share(1.0)}))
    xids: tuple[int, ...] = ()
    lost: bool = False
    there: bool = True
    heat: Heat | None = None
    rates: Rates = NO_RATES

    @property
    def runs(self) -> bool:
        """Whether it draws power."""
        return self.there and not self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counters at one instant: `energy` in J, `work` in seconds under full load, the rest in events.

    `heated` is how far, from 0 to 1, the device is on its way to the temperature `heated_to` (°C) of a fault.
    """

    energy: float = 0.0
    work: float = 0.0
    corrected: float = 0.0
    uncorrected: float = 0.0
    replays: float = 0.0
    remapped: float = 0.0
    heated: float = 0.0
    heated_to: float = 0.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A drive, the instant from which it holds, and what was counted by then."""

    since: float
    drive: Drive
    before: Counted = Counted()

    def at(self, instant: float) -> Counted:
        """The counters at an instant of the stretch."""
        passed, rates, before = instant - self.since, self.drive.rates, self.before
        return replace(
            before,
            energy=before.energy + _energy(self.drive, instant) - _energy(self.drive, self.since),
            work=before.work + _work(self.drive, instant) - _work(self.drive, self.since),
            corrected=before.corrected + rates.corrected * passed,
            uncorrected=before.uncorrected + rates.uncorrected * passed,
            replays=before.replays + rates.replays * passed,
            remapped=before.remapped + rates.remapped * passed,
            heated=_heated(self, passed),
        )

    def energy(self, instant: float) -> float:
        """The energy drawn up to an instant of the stretch, in J."""
        return self.before.energy + _energy(self.drive, instant) - _energy(self.drive, self.since)


@dataclass(frozen=True, slots=True)
class History:
    """The stretches that still count, the current one last. What came before the first was as it begins, unloaded."""

    stretches: tuple[Stretch, ...]

    @property
    def now(self) -> Stretch:
        """The current one."""
        return self.stretches[-1]

    def energy(self, instant: float) -> float:
        """The energy drawn up to an instant, in J; below 0 before the counting began."""
        for stretch in reversed(self.stretches):
            if stretch.since <= instant:
                return stretch.energy(instant)
        first = self.stretches[0]
        return first.before.energy - first.drive.physics.idle_power * (first.since - instant)

    def mean_power(self, until: float, seconds: float) -> float:
        """What was drawn on average for so many seconds, in W."""
        return (self.energy(until) - self.energy(until - seconds)) / seconds


def begin(drive: Drive, since: float = 0.0) -> History:
    """A history that begins with this drive. At instant 0, the boot, nothing is counted yet."""
    return History((Stretch(since, drive, _struck(Counted(), (), drive)),))


def changed(history: History, drive: Drive, at: float) -> History:
    """The history with another drive from that instant on; the same object where the drive is the same."""
    last = history.now
    if drive == last.drive:
        return history
    counted = _struck(last.at(at), last.drive.xids, drive)
    needed = at - 2 * window(drive.physics)
    kept = tuple(
        each
        for each, following in zip(history.stretches, history.stretches[1:], strict=False)
        if following.since > needed
    )
    return History((*kept, *((last,) if last.since < at else ()), Stretch(at, drive, counted)))


def window(physics: Physics) -> float:
    """For how many seconds the power of the past still warms a device."""
    return physics.thermal_seconds / _STEADY_PART


def power(drive: Drive, at: float) -> float:
    """What is drawn at an instant, in W."""
    if not drive.runs:
        return 0.0
    physics = drive.physics
    return physics.idle_power + (physics.peak_power - physics.idle_power) * busy(drive, at) / _HUNDRED


def busy(drive: Drive, at: float) -> float:
    """The load of the device as a whole, in percent."""
    if not drive.runs:
        return 0.0
    return sum(share.of * level(share.load, Part.GPU, at) for share in drive.shares.values())


def _work(drive: Drive, at: float) -> float:
    """Seconds under full load from 0 to `at`."""
    if not drive.runs:
        return 0.0
    return sum(share.of * total(share.load, at) for share in drive.shares.values()) / _HUNDRED


def _energy(drive: Drive, at: float) -> float:
    """What is drawn from 0 to `at`, in J: the integral of `power`."""
    if not drive.runs:
        return 0.0
    physics = drive.physics
    return physics.idle_power * at + (physics.peak_power - physics.idle_power) * _work(drive, at)


def _heated(stretch: Stretch, passed: float) -> float:
    heat, before = stretch.drive.heat, stretch.before.heated
    if heat is not None:
        return min(1.0, before + passed / heat.within)
    return max(0.0, before - passed / window(stretch.drive.physics))


_UNCORRECTED = (48, 94, 95, 140)  # Xids that tell of an uncorrectable error of the memory
_REMAPPED = (63, 64)  # and of a row that is taken out of use, or cannot be


def _struck(counted: Counted, before: tuple[int, ...], drive: Drive) -> Counted:
    """With what the errors that are new count, and the aim of a temperature."""
    new = [number for number in drive.xids if number not in before]
    return replace(
        counted,
        uncorrected=counted.uncorrected + sum(number in _UNCORRECTED for number in new),
        remapped=counted.remapped + sum(number in _REMAPPED for number in new),
        heated_to=drive.heat.to if drive.heat else counted.heated_to,
    )
