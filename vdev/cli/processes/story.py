"""A story with numbered steps and checks, on paper: what `vdev demo` prints."""

import time
from collections.abc import Callable
from typing import Any

_PATIENCE = 30.0  # seconds that a step may take before it counts as failed


class FailedCheck(Exception):
    """A check did not hold."""


class Story:
    """Numbered steps with checks."""

    def __init__(self) -> None:
        self.checks = 0
        self._step = 0

    def step(self, title: str) -> None:
        self._step += 1
        print(f"\n{self._step}. {title}")

    def say(self, line: str) -> None:
        print(f"   {line}")

    def check(self, what: str, *, expected: object, actual: object) -> None:
        """A claim that must hold."""
        if expected != actual:
            raise FailedCheck(f"{what}: expected {expected!r}, got {actual!r}")
        self.checks += 1
        print(f"   ✓ {what}")

    def show(self, edits: Any) -> None:
        for key, value in sorted(edits.envs.items()):
            self.say(f"  env     {key}={value}")
        for node in edits.devices:
            self.say(f"  device  {node.container_path} ({node.permissions}) from {node.host_path}")


async def until(kubelet: Any, condition: Callable[[], bool], what: str) -> float:
    """Wait until the condition holds; the milliseconds that it took."""
    begun = time.monotonic()
    await kubelet.wait_until(condition, timeout=_PATIENCE, what=what)
    return (time.monotonic() - begun) * 1000
