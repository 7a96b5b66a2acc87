"""`python -m tests.kit.play`: plays the worlds that stand on stdin as JSON, in a process that has nothing but them.

A line for each: `{"seed", "seconds", "events"}`; its outcome is a line on stdout. `python()` gives a program
that stands for Python and has this one ready (see `mother`), for all processes of a run.
"""

import json
import os
import subprocess
import sys
from typing import Any

from tests.kit import mother

_ALIKE = {"PYTHONHASHSEED": "0"}  # the order of sets is part of a world

python = mother.Program("VDEV_TESTS_PLAY", "tests.kit.play", "-m tests.kit.play", environment=_ALIKE)
share = python.share


def played(*worlds: dict[str, Any], program: str = "") -> list[dict[str, Any]]:
    """The outcomes of these worlds, played one after the other; `program` is another Python than the prepared one."""
    done = subprocess.run(
        [program or python(), "-m", "tests.kit.play"],
        input="\n".join(map(json.dumps, worlds)),
        env=os.environ | _ALIKE,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _main(descriptor: str = "", *_: str) -> None:
    if descriptor:
        mother.wait(descriptor)
    from tests.worlds import campaign

    campaign.prepare()
    if descriptor:
        mother.serve(descriptor)
    mother.end_with(_play)


def _play() -> None:
    from tests.worlds.campaign import play_one

    for line in sys.stdin.read().splitlines():
        plan = _plan(**json.loads(line))
        outcome = play_one(plan)
        told = {"rule": outcome.rule, "failure": outcome.failure, "digest": outcome.digest, "told": outcome.told}
        sys.stdout.write(json.dumps(told | {"messages": outcome.messages}) + "\n")


def _plan(seed: int, seconds: float, events: list[Any] | None = None) -> Any:
    from tests.worlds.campaign import SeededWorld
    from tests.worlds.events import Event

    return SeededWorld(seed, seconds, None if events is None else tuple(Event(*each) for each in events))


if __name__ == "__main__":
    _main(*sys.argv[1:])
