"""`python -m vdev.worlds`: play worlds, and make of each failure something that can be repeated."""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import __version__
from ..errors import UsageError
from . import campaign, drawn_events, mutant_report
from .campaign import SeededWorld, Total
from .world import Outcome

_ABOUT = """\
Plays nodes on virtual time: the agent and the embedded kubelet, to which everything happens that may happen to a node,
drawn from a seed. After each event the invariants of docs/worlds.md must hold. A failure is shrunk to the fewest events
that still show it, and printed with what repeats it, message for message."""

_EXAMPLES = """\
examples:
  python -m vdev.worlds                         a hundred hours of nodes, of fresh seeds
  python -m vdev.worlds --minutes 2             for two minutes
  python -m vdev.worlds --seed 7 --hours 1      the world of seed 7
  python -m vdev.worlds --seed 7 --story        and what happened in it
  python -m vdev.worlds --seed 7 --events FILE  the world of seed 7, with the events of a file
  python -m vdev.worlds --mutants 0             do the worlds notice what other plugins do wrong?

exit codes: 0 nothing failed, 1 an invariant was broken, 2 usage"""

_FAILED, _USAGE = 1, 2
_TELL = 10.0  # seconds between two lines of progress


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    args = _parser().parse_args(arguments)
    try:
        given = _given(args)
        _stay_the_same()
        campaign.prepare()
        if args.mutants is not None:
            return mutant_report.report(
                workers=args.workers, seeds=args.seeds or 20, code=args.mutants, seed=args.seed or 0
            )
        return _play(args, given)
    except UsageError as wrong:
        print(f"worlds: {wrong}", file=sys.stderr)
        return _USAGE
    except KeyboardInterrupt:
        return 130


def _given(args: argparse.Namespace) -> tuple[drawn_events.Event, ...] | None:
    if args.events and args.seed is None:
        raise UsageError("--events needs the --seed with which they failed")
    return drawn_events.read(args.events) if args.events else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m vdev.worlds",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="the first seed [default: a fresh one]")
    parser.add_argument("--seeds", type=int, metavar="N", help="play so many seeds")
    parser.add_argument("--hours", type=float, metavar="H", help="play so many hours of nodes [default: 100]")
    parser.add_argument("--minutes", type=float, metavar="M", help="play for so many minutes of real time")
    parser.add_argument("--length", type=float, default=1.0, metavar="H", help="hours of one world [default: 1]")
    workers = len(os.sched_getaffinity(0)) + 1  # a world waits whenever an agent's file events are closed
    text = "processes [default: one more than cores]"
    parser.add_argument("--workers", type=int, default=workers, metavar="N", help=text)
    parser.add_argument("--events", type=Path, metavar="FILE", help="these events instead of those of the seed")
    parser.add_argument("--story", action="store_true", help="print what happened in each world")
    parser.add_argument("--shrink", type=float, default=120.0, metavar="S", help="seconds for shrinking [default: 120]")
    parser.add_argument(
        "--mutants",
        type=int,
        metavar="N",
        help="how many bad behaviours are noticed: of other plugins, and N changes of our own code",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def _stay_the_same() -> None:
    """Begin again with the hash seed that every run has, for the order of sets."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "vdev.worlds", *sys.argv[1:]])  # noqa: S606 - itself


def _play(args: argparse.Namespace, given: tuple[drawn_events.Event, ...] | None) -> int:
    first = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    one = args.seed is not None and not (args.seeds or args.hours or args.minutes)
    worlds = args.seeds or (1 if one or given is not None else None)
    hours = args.hours if args.hours or worlds or args.minutes else 100.0
    begun = time.monotonic()
    until = begun + args.minutes * 60 if args.minutes else float("inf")
    total = Total()

    def seeded_worlds() -> Iterator[SeededWorld]:
        for seed in itertools.islice(itertools.count(first), worlds):
            if hours and total.hours >= hours:
                return
            yield SeededWorld(seed, args.length * 3600, given)

    told = begun
    for seeded, outcome in campaign.play(seeded_worlds(), workers=args.workers, until=until):
        total.add(seeded, outcome)
        if args.story or outcome.failure:
            _tell_story(outcome, whole=args.story)
        if time.monotonic() - told > _TELL:
            told = time.monotonic()
            _progress(f"{total.worlds} worlds, {total.hours:.0f} hours, {len(total.failures)} failed")
    seconds = time.monotonic() - begun
    shrunk = [_shrunk(seeded, outcome, args.shrink) for seeded, outcome in total.failures[:1]] if args.shrink else []
    if args.json:
        print(json.dumps(_summary(total, first, seconds), indent=2))
    else:
        _print_summary(total, first, seconds)
    for seeded, outcome in shrunk:
        _print_failure(seeded, outcome)
    return _FAILED if total.failures else 0


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


def _summary(total: Total, first: int, seconds: float) -> dict[str, object]:
    return {
        "version": __version__,
        "commit": _commit(),
        "seeds": [first, first + total.worlds - 1],
        "worlds": total.worlds,
        "nodeHours": round(total.hours, 1),
        "seconds": round(seconds, 1),
        "nodeHoursPerMinute": round(total.hours / seconds * 60, 1),
        "messages": total.messages,
        "digests": dict(sorted(total.digests.items())),
        "events": dict(total.kinds.most_common()),
        "happened": dict(total.happened.most_common()),
        "failures": [{"seed": seeded.seed, "rule": each.rule, "text": each.failure} for seeded, each in total.failures],
    }


def _print_summary(total: Total, first: int, seconds: float) -> None:
    speed = total.hours / seconds * 60
    print(f"{total.worlds} worlds, seeds {first} to {first + total.worlds - 1}, {total.hours:.1f} hours of a node")
    print(f"in {seconds:.1f} s: {speed:.0f} hours a minute, {total.messages} messages")
    print("events: " + ", ".join(f"{count} {kind}" for kind, count in total.kinds.most_common()))
    print("seen: " + ", ".join(f"{count} {name}" for name, count in total.happened.most_common(12)))
    for seeded, each in total.failures:
        print(f"FAILED seed {seeded.seed}: {each.failure}")
    if not total.failures:
        print("every invariant held")


def _print_failure(seeded: SeededWorld, outcome: Outcome) -> None:
    events = seeded.all_events
    print(f"\nseed {seeded.seed}, commit {_commit()}, {len(events)} events: {outcome.failure}")
    print("\n".join(outcome.told[-40:]))
    print(f"\nrepeat it with these {len(events)} lines in a file:\n")
    print(drawn_events.written(events), end="")
    length = f" --length {seeded.seconds / 3600:.6f}"
    print(f"\n    python -m vdev.worlds --seed {seeded.seed}{length} --events FILE --story")


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _progress(line: str) -> None:
    print(f"worlds: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
