"""Whether worlds notice mutants: each is played in some worlds, until one of them breaks an invariant."""

import gc
import sys
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import campaign
from .campaign import SeededWorld
from .drawn_events import CLAIMS
from .mutants import code as changes
from .mutants import described
from .mutants.bad_drivers import BAD_DRIVERS
from .mutants.known import KNOWN
from .world import World

_LENGTH = 1_800.0  # seconds of a world
_SOME = 600.0  # seconds of a world in which it is seen what runs at all


_KEPT: list[World] = []  # whose killed processes would otherwise run their `finally` when they are thrown away


@dataclass(slots=True)
class Verdicts:
    """Which mutants were noticed, by which rule and with which seed."""

    noticed: dict[str, tuple[str, int]] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)


def sound(count: int, *, workers: int, first: int = 1, step: int = 1) -> list[int]:
    """Of so many seeds those whose worlds are well without a mutant; of others nothing could be said."""
    seeded_worlds = (SeededWorld(seed, _LENGTH) for seed in range(first, first + count * step, step))
    return sorted(
        seeded.seed for seeded, outcome in campaign.play(seeded_worlds, workers=workers) if not outcome.failure
    )


def verdicts(names: list[str], *, workers: int, seeds: list[int]) -> Verdicts:
    """Play each in these worlds, until one notices it."""
    found = Verdicts()
    waiting = dict.fromkeys(names, 0)

    def seeded_worlds() -> Iterator[SeededWorld]:
        for seed in seeds:  # all with one seed, then those that are left with the next
            for name in [each for each in waiting if each not in found.noticed]:
                if name not in found.noticed:
                    yield SeededWorld(seed, _LENGTH, mutant=name)

    for seeded, outcome in campaign.play(seeded_worlds(), workers=workers):
        if outcome.failure and seeded.mutant not in found.noticed:
            found.noticed[seeded.mutant] = outcome.rule, seeded.seed
            print(f"worlds: noticed: {described(seeded.mutant)}: {outcome.rule}", file=sys.stderr, flush=True)
    found.missed = [each for each in names if each not in found.noticed]
    return found


def report(*, workers: int, seeds: int, code: int, seed: int) -> int:
    """Print how many are noticed; 1 where a known one is not."""
    good = sound(seeds, workers=workers)
    known = verdicts(list(KNOWN), workers=workers, seeds=good)
    with_claims = sound(seeds, workers=workers, first=CLAIMS, step=CLAIMS)
    drivers = verdicts(list(BAD_DRIVERS), workers=workers, seeds=with_claims)
    known.noticed |= drivers.noticed
    known.missed += drivers.missed
    names = changes.drawn(_ran(), code, seed) if code else []
    ours = verdicts(names, workers=workers, seeds=good)
    print(f"{len(known.noticed)} of {len(KNOWN) + len(BAD_DRIVERS)} known bad behaviours are noticed:")
    for name, (rule, first) in known.noticed.items():
        print(f"  {name}: {rule} (seed {first})")
    for name in known.missed:
        print(f"  NOT NOTICED: {name}")
    if names:
        print(f"{len(ours.noticed)} of {len(names)} changes of our own code are noticed, in {len(good)} worlds at most")
        packages = Counter(changes.mutant(name).package for name in names)
        by_package = Counter(changes.mutant(name).package for name in ours.noticed)
        for package, count in sorted(packages.items()):
            print(f"  {package}: {by_package[package]} of {count}")
        for name in ours.missed:
            print(f"  not noticed: {described(name)}")
    return 1 if known.missed else 0


def _ran() -> list[types.CodeType]:
    """The code of the package that runs in some world."""
    seen: set[types.CodeType] = set()

    def look(frame: types.FrameType, what: str, _: object) -> None:
        if what == "call" and "/vdev/" in frame.f_code.co_filename:
            seen.add(frame.f_code)

    sys.setprofile(look)
    try:
        for seed in (1, 2, 3):
            seeded = SeededWorld(seed, seconds=_SOME)
            with campaign.place(f"profile-{seed}") as root:
                world = World(seed, seeded.all_events, _SOME, root)
                _KEPT.append(world)
                world.run()
    finally:
        sys.setprofile(None)
        gc.freeze()
    return list(seen)
