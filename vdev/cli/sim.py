"""`vdev sim`: the embedded kubelet alone, for any device plugin to register with."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from .limits import raise_open_files

EPILOG = """examples:
  vdev sim                                        then, in another terminal:
  vdev run --config-file vdev.yaml --kubelet-dir /tmp/vdev-sim

  vdev sim --kubelet-dir /tmp/node --pods pods/   Pod manifests from a directory, as static pods

Pods come and go with the files in --pods. SIGHUP restarts the kubelet, Ctrl-C ends it.
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "sim",
        help="the embedded kubelet alone, for any device plugin",
        description="Run the embedded kubelet: any device plugin can register; the node is printed as it changes.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kubelet-dir", type=Path, metavar="DIR", help="of its own [default: /tmp/vdev-sim]")
    parser.add_argument("--pods", type=Path, metavar="DIR", help="directory of Pod manifests (*.yaml), watched")
    parser.add_argument("--node-name", default="sim-node", metavar="NAME", help="name of the node [default: sim-node]")
    parser.add_argument(
        "--compat",
        choices=("1.36", "1.37"),
        default="1.36",
        help="whose re-registration behaviour: 1.36 has a known bug, 1.37 has it fixed [default: 1.36]",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the kubelet's random choices [default: 0]")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: one object per line")


def run(args: argparse.Namespace) -> int:
    """Run until told to stop."""
    raise_open_files()
    from ..sim import Compat  # gRPC is not needed for --help
    from ..sim.app import Output, SimOptions, serve

    given = {"kubelet_dir": args.kubelet_dir} if args.kubelet_dir else {}
    options = SimOptions(
        **given,
        pods=args.pods,
        compat=Compat(args.compat),
        output=Output(args.output),
        node_name=args.node_name,
        seed=args.seed,
    )
    return asyncio.run(serve(options))
