"""`vdev sim`: the embedded kubelet alone, for any device plugin or DRA driver to register with."""

import argparse
import asyncio
from pathlib import Path

from .limits import raise_open_files

DESCRIPTION = (
    "Run the embedded kubelet. Any device plugin can register with it; it prints the node whenever it changes."
)
EPILOG = """examples:
  vdev sim                                        and in another terminal:
  vdev run --config-file vdev.yaml --kubelet-dir /tmp/vdev-sim

  vdev sim --kubelet-dir /tmp/node --pods pods/   with pods from a directory of manifests

A file that appears in --pods starts its pods, and removing it ends them. SIGHUP restarts the kubelet, Ctrl-C ends it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--kubelet-dir", type=Path, metavar="DIR", help="its root directory [default: /tmp/vdev-sim]")
    parser.add_argument(
        "--pods", type=Path, metavar="DIR", help="directory of manifests (*.yaml) to watch: Pods, objects of DRA"
    )
    parser.add_argument("--cdi-dir", type=Path, metavar="DIR", help="where CDI names of claims are looked up")
    parser.add_argument("--node-name", default="sim-node", metavar="NAME", help="name of the node [default: sim-node]")
    parser.add_argument(
        "--compat",
        choices=("1.36", "1.37"),
        default="1.36",
        help="how to behave when a plugin registers again: 1.36 has a known bug, 1.37 has it fixed [default: 1.36]",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of its random choices [default: 0]")
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="output format; json is one object per line [default: text]",
    )


def run(args: argparse.Namespace) -> int:
    """Run until stopped by a signal."""
    raise_open_files()
    from ...sim import Compat  # not needed for --help
    from ...sim.app import Output, SimOptions, serve

    given = {"kubelet_dir": args.kubelet_dir} if args.kubelet_dir else {}
    options = SimOptions(
        **given,
        pods=args.pods,
        compat=Compat(args.compat),
        output=Output(args.output),
        node_name=args.node_name,
        seed=args.seed,
        cdi_dir=args.cdi_dir,
    )
    return asyncio.run(serve(options))
