"""`python -m tests.worlds`: plays worlds, and prints how to repeat each failure."""

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.worlds import campaign
from tests.worlds.campaign import SeededWorld
from tests.worlds.events import Event, read, written
from tests.worlds.world import Outcome

_ABOUT = """\
Plays nodes on virtual time: the agent and the embedded kubelet, to which everything happens that may happen to a node,
drawn from a seed. After each event the invariants of docs/developers/worlds.md must hold. A failure is
shrunk to the fewest events that still show it, and printed with what repeats it, message for message."""

_EXAMPLES = """\
examples:
  python -m tests.worlds --minutes 2             nodes of fresh seeds, for two minutes
  python -m tests.worlds --seed 7                the world of seed 7
  python -m tests.worlds --seed 7 --story        and what happened in it
  python -m tests.worlds --seed 7 --events FILE  the world of seed 7, with the events of a file

exit codes: 0 nothing failed, 1 an invariant was broken, 2 usage"""

_TELL = 10.0  # seconds between two lines of progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Play worlds. Returns the exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.events and args.seed is None:
        parser.error("--events needs the --seed with which they failed")
    _stay_the_same()
    campaign.prepare()
    return _play(args, read(args.events) if args.events else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tests.worlds",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="the first seed [default: a fresh one]")
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="begin new worlds for so long [default: 2, or one seed]"
    )
    parser.add_argument("--length", type=float, default=1.0, metavar="H", help="hours of one world [default: 1]")
    workers = len(os.sched_getaffinity(0)) + 1  # closing an agent's file events makes a world wait
    text = "processes [default: one more than cores]"
    parser.add_argument("--workers", type=int, default=workers, metavar="N", help=text)
    parser.add_argument("--events", type=Path, metavar="FILE", help="these events instead of those of the seed")
    parser.add_argument("--story", action="store_true", help="print what happened in each world")
    parser.add_argument("--shrink", type=float, default=120.0, metavar="S", help="seconds for shrinking [default: 120]")
    return parser


def _stay_the_same() -> None:
    """Restart this process with a fixed hash seed, on which the order of sets depends."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.worlds", *sys.argv[1:]])


def _play(args: argparse.Namespace, given: tuple[Event, ...] | None) -> int:
    first = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    count = 1 if args.seed is not None and not args.minutes else None
    seeded_worlds = (SeededWorld(each, args.length * 3600, given) for each in itertools.count(first))
    begun = told = time.monotonic()
    until = float("inf") if count else begun + (args.minutes or 2) * 60
    worlds, hours = 0, 0.0
    failures: list[tuple[SeededWorld, Outcome]] = []
    for seeded, outcome in campaign.play(itertools.islice(seeded_worlds, count), workers=args.workers, until=until):
        worlds, hours = worlds + 1, hours + outcome.hours
        if outcome.failure:
            failures.append((seeded, outcome))
        if args.story or outcome.failure:
            _tell_story(outcome, whole=args.story)
        if time.monotonic() - told > _TELL:
            told = time.monotonic()
            _progress(f"{worlds} worlds, {hours:.0f} hours, {len(failures)} failed")
    shrunk = [_shrunk(seeded, outcome, args.shrink) for seeded, outcome in failures[:1]] if args.shrink else []
    print(f"{worlds} worlds, seeds {first} to {first + worlds - 1}, {hours:.1f} hours of a node")
    for seeded, outcome in failures:
        print(f"FAILED seed {seeded.seed}: {outcome.failure}")
    for seeded, outcome in shrunk:
        _print_failure(seeded, outcome)
    if not failures:
        print("every invariant held")
    return 1 if failures else 0


def _shrunk(seeded: SeededWorld, outcome: Outcome, seconds: float) -> tuple[SeededWorld, Outcome]:
    _progress(f"seed {seeded.seed} failed; looking for the fewest events that show it, for at most {seconds:g} s")
    until = time.monotonic() + seconds
    smaller = campaign.shrunk(seeded, outcome.rule, until=until, told=lambda left: _progress(f"{left} events"))
    return smaller, campaign.play_one(smaller) if smaller is not seeded else outcome


def _tell_story(outcome: Outcome, *, whole: bool) -> None:
    for line in outcome.told if whole else outcome.told[-25:]:
        print(f"  {line}", file=sys.stderr)
    if outcome.failure:
        print(f"seed {outcome.seed} failed: {outcome.failure}", file=sys.stderr)


def _print_failure(seeded: SeededWorld, outcome: Outcome) -> None:
    events = seeded.all_events
    print(f"\nseed {seeded.seed}, {len(events)} events: {outcome.failure}")
    print("\n".join(outcome.told[-40:]))
    print(f"\nrepeat it with these {len(events)} lines in a file:\n")
    print(written(events), end="")
    length = f" --length {seeded.seconds / 3600:.6f}"
    print(f"\n    python -m tests.worlds --seed {seeded.seed}{length} --events FILE --story")


def _progress(line: str) -> None:
    print(f"worlds: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
