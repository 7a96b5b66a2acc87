"""What drove a device since when, and what its counters come to by that.

A `Drive` is what drives a device for a while: its loads, what fails, whether it is there. A `History` is a list of them
with what was counted when each began. Counters at any instant are what was counted at the last change, and a formula's
integral since. Nothing depends on who reads them how often, and a process that was handed the history reads on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..model.faults.fault_effects import Overheat
from ..model.telemetry import Physics
from .shapes import IDLE, NO_LOAD, Levels, Load, levels, total

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
    heat: Overheat | None = None
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
    """A drive, from when it holds, and what was counted by then. `offset` is what its load comes to up to then."""

    since: float
    drive: Drive
    before: Counted
    offset: float

    def at(self, instant: float) -> Counted:
        """The counters at an instant of the stretch."""
        passed, rates, before = instant - self.since, self.drive.rates, self.before
        worked = self._worked(instant)
        return Counted(
            energy=before.energy + self._drawn(passed, worked),
            work=before.work + worked,
            corrected=before.corrected + rates.corrected * passed,
            uncorrected=before.uncorrected + rates.uncorrected * passed,
            replays=before.replays + rates.replays * passed,
            remapped=before.remapped + rates.remapped * passed,
            heated=_heated(self, passed),
            heated_to=before.heated_to,
        )

    def energy(self, instant: float) -> float:
        """The energy drawn up to an instant of the stretch, in J."""
        return self.before.energy + self._drawn(instant - self.since, self._worked(instant))

    def _worked(self, instant: float) -> float:
        """Seconds under full load since it began."""
        return _work(self.drive, instant) - self.offset

    def _drawn(self, passed: float, worked: float) -> float:
        """What was drawn since, in J: the integral of `power_under`."""
        physics = self.drive.physics
        return (
            physics.idle_power * passed + (physics.peak_power - physics.idle_power) * worked if self.drive.runs else 0.0
        )


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


def begin(drive: Drive, since: float = 0.0) -> History:
    """A history that begins with this drive. At instant 0, the boot, nothing is counted yet."""
    return History((stretch(since, drive, _struck(Counted(), (), drive)),))


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
    return History((*kept, *((last,) if last.since < at else ()), stretch(at, drive, counted)))


def stretch(since: float, drive: Drive, before: Counted) -> Stretch:
    """A stretch that begins with what was counted before."""
    return Stretch(since, drive, before, _work(drive, since))


def window(physics: Physics) -> float:
    """For how many seconds the power of the past still warms a device."""
    return physics.thermal_seconds / _STEADY_PART


def power_under(drive: Drive, percent: float) -> float:
    """What is drawn under a load of the device as a whole, in W."""
    physics = drive.physics
    return physics.idle_power + (physics.peak_power - physics.idle_power) * percent / _HUNDRED if drive.runs else 0.0


def whole_load(drive: Drive, at: float) -> Levels:
    """The load of the device as a whole; of the memory, as its parts have different shares of that, it says nothing."""
    if not drive.runs:
        return IDLE
    alone = drive.shares.get(WHOLE)
    if alone is not None:
        return levels(alone.load, at)
    parts = [(share.of, levels(share.load, at)) for share in drive.shares.values()]
    return Levels(
        gpu=sum(of * each.gpu for of, each in parts),
        encoder=sum(of * each.encoder for of, each in parts),
        decoder=sum(of * each.decoder for of, each in parts),
    )


def _work(drive: Drive, at: float) -> float:
    """Seconds under full load up to `at`, but for a constant."""
    if not drive.runs:
        return 0.0
    alone = drive.shares.get(WHOLE)
    if alone is not None:
        return total(alone.load, at) / _HUNDRED
    return sum(share.of * total(share.load, at) for share in drive.shares.values()) / _HUNDRED


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
