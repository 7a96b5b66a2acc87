"""A watchdog on the event loop: which callback kept its thread's processor longest.

Processor time and not time by the clock: what else runs on the machine does not count. How fast the processor is at the
moment does, so it is measured with a fixed piece of work; and who judges takes the best of several rounds.
"""

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass

LIMIT = 0.05  # seconds of a processor on which the fixed piece of work takes `_NOMINAL`
_NOMINAL = 0.004


@dataclass
class LongestCallback:
    """The callback that took longest, and for how many times the limit."""

    times: float = 0.0
    name: str = "none"

    def __str__(self):
        """For the message of a failed test."""
        return f"{self.name} kept the loop for {self.times * LIMIT * 1e3:.1f} ms"


@contextlib.contextmanager
def watching(monkeypatch):
    """While the context lasts, every callback of the loop is timed; the longest is known at its end."""
    longest, limit, run = LongestCallback(), LIMIT * _slowness(), asyncio.Handle._run

    loops = threading.get_ident()

    def timed(handle):
        if threading.get_ident() != loops:  # the loop of somebody else
            run(handle)
            return
        begun = time.thread_time()
        run(handle)
        times = (time.thread_time() - begun) / limit
        if times > longest.times:
            longest.times, longest.name = times, _name(handle)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield longest


def _name(handle):
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    return f"the task {owner.get_name()!r}" if isinstance(owner, asyncio.Task) else str(callback)


def _slowness():
    """How many times longer than usual this processor takes now, at least once."""
    begun = time.thread_time()
    known = {}
    for number in range(30_000):
        known[number] = (number, str(number))
    return max(1.0, (time.thread_time() - begun) / _NOMINAL)
