"""`python -m bench [GROUP …]`: run benchmarks and print one table; progress goes to stderr."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from bench import cluster, device_plugin, whole_process
from bench.table import Table

GROUPS: dict[str, Callable[[Table], Awaitable[None]]] = {
    "allocate": device_plugin.allocate,
    "reload": device_plugin.allocate_during_reload,
    "edit": device_plugin.edit,
    "hotplug": device_plugin.hotplug,
    "preferred": device_plugin.preferred,
    "start": whole_process.start,
    "memory": whole_process.memory,
    "claim": cluster.claim,
    "fleet": cluster.fleet,
}

_EXAMPLES = """\
examples:
  python -m bench --quick allocate    check within seconds that the benchmark works; not a measurement
  python -m bench --peer 'some-plugin --dir {plugin_dir}' --peer-resource example.com/thing
                                      compare another device plugin with vdev, and measure nothing else

exit codes: 0 measured, whether or not budgets hold; 1 a group could not be measured; 2 wrong usage"""


def main() -> int:
    """Run the benchmarks. Returns the exit code."""
    sentences = "".join(f"  {name:<10} {(each.__doc__ or '').strip()}\n" for name, each in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the budgets, each compared with a floor of the same run, and print a Markdown table.\n\n"
        f"groups (default: all, about 8 minutes):\n{sentences}",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="the groups to measure")
    parser.add_argument("--quick", action="store_true", help="take few samples, to check that the benchmark works")
    parser.add_argument(
        "--peer", metavar="CMD", help="another plugin's command, with {kubelet_dir}, {plugin_dir}, {dir}"
    )
    parser.add_argument("--peer-resource", metavar="NAME", help="the resource that the other plugin registers")
    options = parser.parse_args()
    if unknown := [each for each in options.groups if each not in GROUPS]:
        parser.error(f"no group is called {unknown[0]!r}; expected {', '.join(GROUPS)}")
    if bool(options.peer) != bool(options.peer_resource):
        parser.error("--peer and --peer-resource go together")
    groups = {name: GROUPS[name] for name in options.groups or ([] if options.peer else GROUPS)}
    if options.peer:
        groups["peer"] = lambda table: whole_process.peer(table, options.peer, options.peer_resource)
    table = Table(quick=options.quick)
    asyncio.run(_measure(table, groups))
    print(table.markdown())
    return int(bool(table.failed))


async def _measure(table: Table, groups: dict[str, Callable[[Table], Awaitable[None]]]) -> None:
    """Measure the groups. If one fails, it is reported, and the others continue."""
    for name, measure in groups.items():
        table.say(name)
        try:
            await measure(table)
        except* (TimeoutError, RuntimeError, OSError) as errors:
            table.fail(name, "; ".join(repr(each) for each in errors.exceptions))


if __name__ == "__main__":
    sys.exit(main())
