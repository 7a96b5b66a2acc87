"""Runs the tests again and again, each time with another seed, until one run is red.

    python -m tests.kit.again --runs 20 [pytest's options]

A line for each run: its seed, from which the order of tests, `random` and Hypothesis follow; what pytest counted; how
long it took; the processor time of all its processes; how many others wanted the processors at its end. The output of a
red run follows.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time

_PYTEST = (sys.executable, "-m", "pytest", "-q")
_COUNTED = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_HEAD = "| run | seed | result | wall s | CPU s | load |\n|--:|--:|---|--:|--:|--:|\n"


def again(runs, command, out):
    """Run the command so many times, with a new seed each; 0 if all were green, else the exit code of the red one."""
    out.write(_HEAD)
    for number in range(1, runs + 1):
        seed = random.SystemRandom().randrange(2**32)
        with tempfile.TemporaryFile("w+") as said:
            began, used = time.monotonic(), _children()
            seeds = (f"--randomly-seed={seed}", f"--hypothesis-seed={seed}")
            code = subprocess.run((*command, *seeds), stdout=said, stderr=subprocess.STDOUT, check=False).returncode
            wall, cpu = time.monotonic() - began, _children() - used
            said.seek(0)
            text = said.read()
        counted = _COUNTED.findall(text)
        result = counted[-1] if counted else f"exit code {code}"
        out.write(f"| {number} | {seed} | {result} | {wall:.0f} | {cpu:.0f} | {os.getloadavg()[0]:.1f} |\n")
        out.flush()
        if code:
            out.write(f"\n{text}\nrun {number} of {runs} is red; repeat it with {' '.join(seeds)}\n")
            return code
    out.write(f"\n{runs} of {runs} runs are green\n")
    return 0


def _children():
    """Processor seconds of all processes that have ended below this one."""
    used = os.times()
    return used.children_user + used.children_system


def _main():
    parser = argparse.ArgumentParser(prog="python -m tests.kit.again", description="Run the tests again and again.")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="how many times (default 20)")
    options, passed_on = parser.parse_known_args()
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: at least one")
    return again(options.runs, (*_PYTEST, *passed_on), sys.stdout)


if __name__ == "__main__":
    sys.exit(_main())
