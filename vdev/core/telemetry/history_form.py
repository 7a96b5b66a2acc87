"""Histories as plain lists, for a process that comes after this one: it then counts on as if it had been there.

What a configuration says is not in them: the physics are those of the reader's. A record that is not understood is no
history, and a device without one begins anew.
"""

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from ..model.faults.fault_effects import Overheat
from ..model.telemetry import LoadPattern, Physics, Range
from .history import Counted, Drive, History, Rates, Share, Stretch, begin, stretch
from .shapes import Load


def documents(histories: Mapping[str, History]) -> Iterator[tuple[str, list[Any]]]:
    """Those that say more than that a device was there since the boot, by raw device id."""
    for raw, history in histories.items():
        first = history.stretches[0]
        if len(history.stretches) > 1 or first != begin(first.drive).now:
            yield raw, [_stretch(each) for each in history.stretches]


def recalled(document: Any, physics: Physics, now: float) -> History | None:
    """The history of a document; None where it is not understood, or is of a time to come."""
    try:
        stretches = tuple(_read(each, physics) for each in document)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None
    rising = all(one.since < other.since for one, other in pairwise(stretches))
    return History(stretches) if stretches and rising and stretches[-1].since <= now else None


def _stretch(each: Stretch) -> list[Any]:
    drive = each.drive
    shares = {name: _share(share) for name, share in drive.shares.items()}
    heat = astuple(drive.heat) if drive.heat else None
    rest = [list(drive.xids), drive.lost, drive.there, heat, astuple(drive.rates)]
    return [each.since, astuple(each.before), shares, *rest]


def _share(share: Share) -> list[Any]:
    load = share.load
    ranges = [(of.low, of.high) for of in (load.gpu, load.memory, load.encoder, load.decoder)]
    how = [load.pattern.value, load.period, ranges, load.since, load.lot]
    return [share.of, share.memory, sorted(share.pods), *how]


def _read(document: Any, physics: Physics) -> Stretch:
    since, counted, shares, xids, lost, there, heat, rates = document
    drive = Drive(
        physics=physics,
        shares=MappingProxyType({str(name): _read_share(each) for name, each in shares.items()}),
        xids=tuple(int(number) for number in xids),
        lost=bool(lost),
        there=bool(there),
        heat=Overheat(*map(float, heat)) if heat else None,
        rates=Rates(**dict(zip(Rates.__dataclass_fields__, map(float, rates), strict=True))),
    )
    before = Counted(**dict(zip(Counted.__dataclass_fields__, map(float, counted), strict=True)))
    return stretch(float(since), drive, before)


def _read_share(document: Any) -> Share:
    of, memory, pods, pattern, period, ranges, since, lot = document
    gpu, filled, encoder, decoder = (Range(float(low), float(high)) for low, high in ranges)
    load = Load(
        pattern=LoadPattern(pattern),
        period=float(period),
        gpu=gpu,
        memory=filled,
        encoder=encoder,
        decoder=decoder,
        since=float(since),
        lot=int(lot),
    )
    return Share(float(of), load, int(memory), frozenset(map(str, pods)))
