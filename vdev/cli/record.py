"""`vdev record`: this node's devices as a configuration that simulates them elsewhere."""

import argparse
import asyncio
import json
import secrets
import sys
from pathlib import Path

from .. import config
from ..errors import UsageError, VdevError
from ..hostfs import HostRoot
from . import common, options

DESCRIPTION = """Record the devices of this node as a vdev configuration that plays them virtually elsewhere.

Sources are the kubelet (PodResources: devices of all plugins that are healthy or held by a pod, with ids and NUMA
nodes) and sysfs (PCI addresses, USB identities, vendors and models). Ids, numbers, NUMA nodes and health stay the same.
GPUs of a known model use its preset, so that they can have partitions and metrics. The node is not changed."""
EPILOG = """examples:
  vdev record > node.yaml                       on a node, as root
  vdev record --anonymize > node.yaml           to share: serials, UUIDs, addresses and names are hashed
  vdev record --hardware                        also hardware that no plugin offers, such as USB sticks
  vdev plan node.yaml                           show what it has
  vdev run node.yaml --kubelet-dir /tmp/vdev-sim    play it, beside vdev sim

Unhealthy devices that no pod holds are missing, because the kubelet does not report them. The exit code is 1 if the
kubelet does not answer; with --hardware, sysfs is enough.
"""

_TIMEOUT = 10.0  # seconds, for the kubelet's answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "vdev record [option ...]"
    parser.add_argument("--anonymize", action="store_true", help="hash what identifies this node and its devices")
    parser.add_argument("--salt", default="", help="with --anonymize: gives the same names each time [default: random]")
    parser.add_argument("--hardware", action="store_true", help="also make entries for hardware that no plugin offers")
    parser.add_argument("--domain", default="example.com", help="domain of their resources [default: example.com]")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write to this file, not to stdout")
    root, node = (
        "where to find the host's /dev and /sys; default: /",
        "the name of this node; default: this host's name",
    )
    options.add(parser, "kubelet_dir", host_root=root, node_name=node)
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.salt and not args.anonymize:
        raise UsageError("--salt is for --anonymize")
    from ..deviceplugin import podresources  # not needed for --help
    from ..recording import Mask, pieces, recorded

    chosen = options.read(args)
    socket = chosen.pod_resources_socket
    devices = asyncio.run(podresources.listed(socket, within=_TIMEOUT))
    if devices is None and not args.hardware:
        raise VdevError(
            f"the kubelet does not answer at {socket}; run this on a node as root, give --kubelet-dir, or record what "
            "sysfs shows alone with --hardware"
        )
    hardware = pieces(HostRoot(chosen.host_root))
    mask = Mask((args.salt or secrets.token_hex(16)) if args.anonymize else "")
    draft = recorded(chosen.node_name, devices or (), hardware, mask, domain=args.domain if args.hardware else "")
    text = draft.text()
    config.load_text(text, "the recording")  # a recording that vdev would refuse is an error now, not when it is used
    if args.output == "json":
        print(json.dumps({"text": text, "warnings": draft.warnings}, indent=2))
    elif args.to is None:
        sys.stdout.write(text)
    else:
        _write(args.to, text)
    if args.output != "json":
        for warning in dict.fromkeys(draft.warnings):
            print(f"warning: {warning}", file=sys.stderr)
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as failed:
        raise UsageError(f"--to: {path} cannot be written: {failed.strerror}") from failed
