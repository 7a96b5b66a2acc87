"""`python -m tests.kit.play`: plays worlds from stdin in a separate process.

Each world is a line of JSON, `{"seed", "seconds", "events"}`, and its outcome is a line on stdout.
"""

import json
import os
import subprocess
import sys
from typing import Any


def played(*worlds: dict[str, Any]) -> list[dict[str, Any]]:
    """Play worlds in sequence in another process. Returns their outcomes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.play"],
        input="\n".join(map(json.dumps, worlds)),
        env=os.environ | {"PYTHONHASHSEED": "0"},  # outcomes depend on the order of sets
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
