"""Nothing between the edges and the command line waits by another clock than the one that it was handed.

Ruff bans the functions of `time` and `asyncio`; a loop's own timers it cannot see.
"""

import ast
from pathlib import Path

import vdev

ROOT = Path(vdev.__file__).parent
TIMERS = {"time", "call_later", "call_at"}
PACKAGES = ("agent", "deviceplugin", "dra", "discovery", "faults", "fleet", "kube", "node", "planning", "telemetry")


def is_of_a_loop(node: ast.AST) -> bool:
    """Whether it is a call such as `loop.call_later(…)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in TIMERS
        and not ast.unparse(node.func.value).endswith("clock")
    )


def test_no_timer_of_a_loop():
    """`time`, `call_later` and `call_at` are the clock's."""
    for package in PACKAGES:
        files = [*(ROOT / package).rglob("*.py")]
        assert files, package
        for path in files:
            tree = ast.parse(path.read_text())
            assert [] == [ast.unparse(node) for node in ast.walk(tree) if is_of_a_loop(node)], path


def test_a_timer_of_a_loop_is_found():
    """However one gets at the loop."""
    found = ["asyncio.get_running_loop().time()", "self._loop.call_at(1, f)", "loop.call_later(1, f)"]
    kept = ["self._clock.call_later(1, f)", "clock.call_at(1, f)", "self.engine.clock.call_at(1, f)"]
    assert found == [line for line in (*found, *kept) if is_of_a_loop(ast.parse(line, mode="eval").body)]
