"""`python -m tests.kit.play`: plays the worlds that stand on stdin as JSON, in a process that has nothing but them.

A line for each: `{"seed", "seconds", "events"}`; its outcome is a line on stdout.
"""

import json
import os
import subprocess
import sys
from typing import Any


def played(*worlds: dict[str, Any]) -> list[dict[str, Any]]:
    """The outcomes of these worlds, played one after the other in another process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.play"],
        input="\n".join(map(json.dumps, worlds)),
        env=os.environ | {"PYTHONHASHSEED": "0"},  # the order of sets is part of a world
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _main() -> None:
    from tests.worlds.campaign import SeededWorld, play_one, prepare
    from tests.worlds.events import Event

    prepare()
    for line in sys.stdin.read().splitlines():
        world = json.loads(line)
        plan = SeededWorld(world["seed"], world["seconds"], tuple(Event(*each) for each in world["events"]))
        outcome = play_one(plan)
        told = {"rule": outcome.rule, "failure": outcome.failure, "digest": outcome.digest, "told": outcome.told}
        sys.stdout.write(json.dumps(told | {"messages": outcome.messages}) + "\n")


if __name__ == "__main__":
    _main()
