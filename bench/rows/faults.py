"""Rows of faults on demand: what rules that hit nothing cost an Allocate, over a plugin without any."""

from contextlib import AsyncExitStack
from pathlib import Path

from ..measured import configs, process
from ..table.row import Run, timed
from .calls import SERVE_ONLY, allocation, interleaved

_RULES = 20


async def faults(run: Run) -> None:
    """Allocate of one id, with rules for the same call that never hit it, beside the same plugin without `faults`."""
    rounds, count = run.some(12, 3), run.some(160, 32)
    plain = configs.plain(1, 16)
    rules = "".join(
        f"    - {{name: r{number}, rpc: Allocate, nth: {10**9 + number}, delay: 1s}}\n" for number in range(_RULES)
    )
    async with AsyncExitStack() as stack:
        sockets: list[Path] = []
        for config in (f"{plain}faults:\n  rules:\n{rules}", plain):
            own = await stack.enter_async_context(process.place())
            agent = await stack.enter_async_context(process.agent(own, config, *SERVE_ONLY))
            sockets += await process.sockets(own, configs.resources(1), agent)
        sides = await interleaved(sockets, "Allocate", [allocation(["d0-0"])], rounds, count, 1)
        note = f"{_RULES} rules for Allocate that never hit, over the same plugin without faults"
        run.add(timed("Allocate", "fault rules, 1 id, 1 caller", sides[0], sides[1], unit="us", note=note))
