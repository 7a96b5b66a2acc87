"""`python -m bench`: measure the budgets; Markdown on stdout, progress on stderr."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from .rows import calls, dra, faults, flaps, fleet, lists, meanwhile, node, record, whole
from .table import report
from .table.row import Peer, Run

ROWS: dict[str, Callable[[Run], Awaitable[None]]] = {
    "allocate": calls.allocate,
    "faults": faults.faults,
    "meanwhile": meanwhile.meanwhile,
    "flaps": flaps.flaps,
    "preferred": calls.preferred,
    "first-list": lists.first,
    "update": lists.update,
    "reload": lists.reload,
    "hotplug": lists.hotplug,
    "record": record.record,
    "start": whole.start,
    "restart": whole.restart,
    "size": whole.size,
    "node": node.node,
    "dra": dra.dra,
    "fleet": fleet.fleet,
    "peer": calls.peer,
}
"""Groups of rows by the name that chooses them; `peer` also adds rows to `start`, `restart` and `size`."""

_LIMIT = 300.0  # seconds for one group; none takes half of it on two cores


def main() -> int:
    """Measure; 0 when everything asked for was measured, whether or not budgets hold."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROWS", help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument(
        "--quick", action="store_true", help="a few samples of each: to see that it works, no measurement"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there instead of to stdout")
    parser.add_argument(
        "--peer",
        metavar="CMD",
        help="another device plugin's command line; {kubelet_dir} and {plugin_dir} are filled in",
    )
    parser.add_argument("--peer-resource", metavar="NAME", help="the resource that it registers")
    options = parser.parse_args()
    unknown = [each for each in options.rows if each not in ROWS]
    if unknown:
        parser.error(f"no rows are called {unknown[0]!r}; expected {', '.join(ROWS)}")
    if bool(options.peer) != bool(options.peer_resource):
        parser.error("--peer and --peer-resource go together")
    peer = Peer(options.peer, options.peer_resource) if options.peer else None
    run = Run(quick=options.quick, peer=peer)
    begun = time.monotonic()
    failed = asyncio.run(_measure(run, options.rows or [each for each in ROWS if peer or each != "peer"]))
    seconds = time.monotonic() - begun
    text = report.as_markdown(run, seconds)
    if options.json:
        options.json.write_text(report.as_json(run, seconds))
    if options.markdown:
        options.markdown.write_text(text)
    else:
        print(text)
    return 1 if failed else 0


async def _measure(run: Run, chosen: list[str]) -> bool:
    """Measure the chosen groups; one that fails is reported and does not stop the others."""
    failed = False
    for name in chosen:
        run.say(name)
        try:
            async with asyncio.timeout(_LIMIT):
                await ROWS[name](run)
        except (TimeoutError, RuntimeError, OSError, AssertionError) as error:
            failed = True
            run.skip(name, f"failed: {error!r}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
