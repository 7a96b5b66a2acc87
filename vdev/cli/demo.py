"""`vdev demo`: a story of a few seconds with the plugin and the embedded kubelet, in which each step is checked.

The story is in demo.yaml. The plugin is `vdev run` in another process; the kubelet runs in this one.
"""

import argparse
import asyncio
import os
import shutil
import tempfile
import textwrap
import time
from pathlib import Path

import yaml

EPILOG = """examples:
  vdev demo           run the story; exit code 0 only if every check holds
  vdev demo --keep    the same, and keep the plugin's log

It needs no cluster and no root.
"""
_STORY = Path(__file__).with_name("demo.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="keep the directory with the file and the plugin's log")


def run(args: argparse.Namespace) -> int:
    """Run the story; 1 if a check fails."""
    directory = Path(tempfile.mkdtemp(prefix="vdev-demo-"))
    try:
        return asyncio.run(_play(directory))
    finally:
        if args.keep:
            print(f"\nkept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


async def _play(directory: Path) -> int:
    from ..sim import Timings
    from ..sim.scenarios.node import EmbeddedNode, NodeOptions  # not needed for --help; it imports gRPC
    from ..sim.scenarios.play import play
    from ..sim.scenarios.plugin_process import VdevRun
    from ..sim.scenarios.scenario import ScenarioError, parse

    begun = time.monotonic()
    os.environ.pop("KUBECONFIG", None)  # the plugin must not use a cluster
    text, checks = "", 0
    print("vdev demo: a node, its kubelet, and a device plugin that advertises what a YAML file declares")
    options, timings = NodeOptions(node_name="demo-node"), Timings(boot=0.1)  # a real kubelet starts in a second
    async with EmbeddedNode(options, directory / "log", plugin=VdevRun, timings=timings) as node:
        node.kubelet.journal.listen(lambda entry: print(textwrap.indent(entry.text, "   ")) if entry.text else None)
        for number, part in enumerate(yaml.safe_load(_STORY.read_text()), 1):
            print(f"\n{number}. {part['title']}")
            if "configuration" in part:
                text = part["configuration"]
                print(textwrap.indent(text, "   "))
            for old, new in part.pop("edit", {}).items():
                text = text.replace(old, new)
            (directory / "vdev.yaml").write_text(text)
            scenario = parse(part | {"configuration": text})
            try:
                await play(scenario, node)
            except ScenarioError as failed:
                raise ScenarioError(await node.explained(str(failed))) from None
            checks += len(scenario.expectations)
            print("   ✓")
    print(
        f"\nAll {checks} checks held, in {time.monotonic() - begun:.1f} s. "
        "Next: vdev sim --help, vdev run --help, configs/"
    )
    return 0
