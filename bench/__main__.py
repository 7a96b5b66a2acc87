"""`python -m bench`: measure the budgets; Markdown on stdout, progress on stderr."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from .rows import calls, dra, faults, features, flaps, fleet, lists, meanwhile, node, pods, record, whole
from .table import report
from .table.compare import compare
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
    "pods": pods.pods,
    "size": whole.size,
    "features": features.features,
    "node": node.node,
    "dra": dra.dra,
    "fleet": fleet.fleet,
    "peer": calls.peer,
}
"""Groups of rows by the name that chooses them; a peer also has rows in `pods`, `start`, `restart`, `size`."""

_LIMIT = 600.0  # seconds for one group; on an idle machine none takes half of it
_FAILED, _WORSE = 1, 3

_ABOUT = """\
Measures the plugin from the kubelet's side of its sockets, beside an empty gRPC server in the same run, and prints a
Markdown table with the budgets. "x floor" is the ratio to that server: it depends on the program more than on the
machine. docs/performance.md says how each row is measured and what to make of it."""

_EXAMPLES = """\
examples:
  python -m bench --quick allocate               see in seconds that it works; no measurement
  python -m bench allocate reload --json a.json  measure two groups and keep every sample
  python -m bench allocate reload --compare a.json
                                                 measure them again: which rows are better, the same, worse?
  python -m bench --read b.json --compare a.json compare two kept runs; nothing is measured
  python -m bench peer start --peer 'some-plugin --dir {plugin_dir}' --peer-resource example.com/thing
                                                 another plugin beside this one

A comparison takes the ratio to the floor where there is one. A row is worse (or better) only when 99 of 100 draws from
the rounds of both runs say so, by more than two runs of one program differ. Compare runs of one machine, at rest.

exit codes:
  0  measured, whether or not budgets hold; nothing is worse
  1  a group could not be measured: the table says why
  2  wrong usage, or a file that cannot be read
  3  --compare found rows that are worse"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and compare; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [each for each in options.rows if each not in ROWS]
    if unknown:
        parser.error(f"no group is called {unknown[0]!r}; expected {', '.join(ROWS)}")
    if bool(options.peer) != bool(options.peer_resource):
        parser.error("--peer and --peer-resource go together")
    if options.read and (options.rows or options.peer or options.quick or options.json):
        parser.error("--read measures nothing: it goes with --compare alone")
    if options.read and not options.compare:
        parser.error("--read needs --compare: the run to compare it with")
    earlier = _read(parser, options.compare) if options.compare else None  # before minutes are spent
    if options.read:
        document, failed = _read(parser, options.read), False
    else:
        document, failed = _measured(options)
    if earlier is None:
        return _FAILED if failed else 0
    comparison = compare(earlier, document)
    print(report.as_comparison(comparison, options.compare))
    return _FAILED if failed else _WORSE if comparison.worse else 0


def _parser() -> argparse.ArgumentParser:
    sentences = {name: (each.__doc__ or "").strip().split(".")[0] for name, each in ROWS.items()}
    groups = "".join(f"  {name:<12}{sentence}\n" for name, sentence in sentences.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"{_ABOUT}\n\ngroups of rows (default: all; about 20 minutes on two cores):\n{groups}",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="GROUP", help="what to measure, see above")
    parser.add_argument("--quick", action="store_true", help="a few samples of each: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers and samples there as well")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there instead of to stdout")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="judge each row by this file of an earlier --json")
    parser.add_argument("--read", type=Path, metavar="FILE", help="with --compare: measure nothing, judge this file")
    parser.add_argument(
        "--peer",
        metavar="CMD",
        help="another device plugin's command line; {kubelet_dir}, {plugin_dir} and {dir} are filled in",
    )
    parser.add_argument("--peer-resource", metavar="NAME", help="the resource that it registers")
    return parser


def _read(parser: argparse.ArgumentParser, file: Path) -> dict[str, Any]:
    """A run that was kept; with a usage error where there is none."""
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        parser.error(f"{file}: {error}")
    if not isinstance(document, dict) or not all("rounds" in row for row in document.get("rows", [{}])):
        parser.error(f"{file}: not a run with its samples; make one with --json")
    return document


def _measured(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Measure and print; the run, and whether a group failed."""
    peer = Peer(options.peer, options.peer_resource) if options.peer else None
    run = Run(quick=options.quick, peer=peer)
    begun = time.monotonic()
    failed = asyncio.run(_measure(run, options.rows or [each for each in ROWS if peer or each != "peer"]))
    seconds = time.monotonic() - begun
    text = report.as_markdown(run, seconds)
    document = report.document(run, seconds)
    if options.json:
        options.json.write_text(report.as_json(document))
    if options.markdown:
        options.markdown.write_text(text)
    else:
        print(text)
    return document, failed


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
