"""`python -m tests.kit.play`: plays the worlds that stand on stdin as JSON, in a process that has nothing but them.

A line for each: `{"seed", "seconds", "events", "mutant"}`; its outcome is a line on stdout.
"""

import fcntl
import json
import os
import subprocess
import sys
from typing import Any

from vdev.worlds import campaign
from vdev.worlds.campaign import Plan
from vdev.worlds.events import Event


def played(*worlds: dict[str, Any]) -> list[dict[str, Any]]:
    """The outcomes of these worlds, played in a fresh interpreter, one after the other."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.play"],
        input="\n".join(map(json.dumps, worlds)),
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Play them."""
    plans = [_plan(**json.loads(line)) for line in sys.stdin.read().splitlines()]
    alone = (campaign.home() / "vdev-world.lock").open("w")  # worlds of one seed have one directory, whoever plays them
    fcntl.flock(alone, fcntl.LOCK_EX)
    campaign.prepare()
    for plan in plans:
        outcome = campaign.play_one(plan)
        told = {"rule": outcome.rule, "failure": outcome.failure, "digest": outcome.digest, "told": outcome.told}
        sys.stdout.write(json.dumps(told | {"messages": outcome.messages}) + "\n")
    sys.stdout.flush()
    os._exit(0)


def _plan(seed: int, seconds: float, events: list[Any] | None = None, mutant: str = "") -> Plan:
    return Plan(seed, seconds, None if events is None else tuple(Event(*each) for each in events), mutant)


if __name__ == "__main__":
    main()
