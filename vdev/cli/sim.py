"""`vdev sim`: runs the embedded kubelet, for any device plugin or DRA driver."""

import argparse
import asyncio
import os
from pathlib import Path

from ..errors import UsageError
from . import common
from .run import raise_open_files

EPILOG = """examples:
  vdev sim                                        and in another terminal:
  vdev run --config-file vdev.yaml --kubelet-dir /tmp/vdev-sim

  vdev sim --kubelet-dir /tmp/node --pods pods/   with pods from a directory of manifests
  vdev sim --api-server 127.0.0.1:8001            with an API server, for claims (DRA), labels, and kubectl

A file that appears in --pods starts its pods, and removing it ends them. SIGHUP restarts the kubelet, Ctrl-C ends it.
The command prints what happens and what changes on the node; with --output json, one object per line.

  vdev sim --exec './my-plugin --socket-dir {plugin_dir}'
  vdev sim --exec './my-plugin --socket-dir {plugin_dir}' --scenario registration --scenario mine.yaml --junit sim.xml
  vdev sim --exec './my-plugin --socket-dir {plugin_dir} --devices {dir}' \\
    --hook fail='rm {dir}/0' --hook heal='touch {dir}/0'

With --exec, it starts a plugin, plays scenarios with it, and reports mistakes. The command is started without a shell,
once for each scenario, on a new node. In it and in hooks, {kubelet_dir} is the kubelet's directory, {plugin_dir} the
directory for sockets of plugins, {cdi_dir} the one for CDI specs, {dir} an empty directory, and {configuration} the
file with a scenario's configuration. {kubeconfig} is the kubeconfig file of an API server, which runs only if the
command or a hook names it.
"""
_ONLY_WITH_EXEC = ("scenario", "hook", "resource", "allow", "strict", "restart", "timeout", "junit", "logs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubelet-dir", type=Path, metavar="DIR", help="the kubelet's root directory [default: /tmp/vdev-sim]"
    )
    parser.add_argument(
        "--pods", type=Path, metavar="DIR", help="directory of manifests (*.yaml) to watch: Pods, objects of DRA"
    )
    parser.add_argument("--cdi-dir", type=Path, metavar="DIR", help="where CDI names are looked up")
    parser.add_argument(
        "--api-server",
        type=_address,
        default="",
        metavar="HOST:PORT",
        help="serve an API server on loopback, for the plugin and for kubectl; its kubeconfig is in --kubelet-dir",
    )
    parser.add_argument("--node-name", default="sim-node", metavar="NAME", help="name of the node [default: sim-node]")
    parser.add_argument(
        "--compat",
        choices=("1.36", "1.37"),
        default="1.36",
        help="behavior when a plugin registers again: 1.36 has a known bug, 1.37 fixes it [default: 1.36]",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random choices [default: 0]")
    common.add_output(parser)

    group = parser.add_argument_group("scenarios with any plugin")
    group.add_argument("--exec", metavar="COMMAND", help="start this plugin, and play scenarios with it")
    group.add_argument(
        "--scenario",
        action="append",
        metavar="NAME|FILE",
        help="a built-in scenario or a file; may be repeated [default: all that the hooks allow]",
    )
    group.add_argument("--list-scenarios", action="store_true", help="print the built-in scenarios")
    group.add_argument(
        "--hook", action="append", metavar="NAME=COMMAND", help="command of the step `hook: NAME`; may be repeated"
    )
    group.add_argument(
        "--resource",
        action="append",
        metavar="NAME",
        help="a resource to test; may be repeated [default: all that the plugin registers]",
    )
    group.add_argument("--restart", action="store_true", help="restart the plugin when it exits, like a DaemonSet")
    group.add_argument("--strict", action="store_true", help="fail on warnings too, and call DRA drivers twice")
    group.add_argument("--allow", action="append", metavar="CODE", help="a finding to ignore; may be repeated")
    group.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long an expectation, a call, a hook or the plugin's end may take [default: 30]",
    )
    group.add_argument("--junit", type=Path, metavar="FILE", help="write the results to this file in JUnit's format")
    group.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="keep the plugin's output in this directory [default: only that of failures]",
    )


def _address(text: str) -> str:
    """HOST:PORT, or the port alone."""
    port = text.rpartition(":")[2]
    if not text:  # argparse converts the default as well
        return text
    if not port.isdecimal() or int(port) > 65535:  # the largest port
        raise argparse.ArgumentTypeError(f"{text!r} is not an address; expected HOST:PORT, such as 127.0.0.1:8001")
    return text


def run(args: argparse.Namespace) -> int:
    """Run until stopped by a signal, or play scenarios."""
    if args.list_scenarios:
        from ..sim.scenarios.run import describe  # not needed for --help

        print(describe())
        return 0
    raise_open_files()
    if args.exec is not None:
        return _play(args)
    if given := [name for name in _ONLY_WITH_EXEC if getattr(args, name)]:
        raise UsageError(f"--{given[0]} needs a plugin to play with; give --exec COMMAND")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC would log each plugin that ends
    from ..sim.app import DEFAULT_DIRECTORY, serve  # not needed for --help

    serving = serve(
        args.kubelet_dir or DEFAULT_DIRECTORY,
        pods=args.pods,
        cdi_dir=args.cdi_dir,
        api_server=args.api_server,
        as_json=args.output == "json",
        compat=args.compat,
        node_name=args.node_name,
        seed=args.seed,
    )
    return asyncio.run(serving)


def _play(args: argparse.Namespace) -> int:
    from ..sim.lint import unknown_code  # not needed for --help
    from ..sim.scenarios import run as scenarios
    from ..sim.scenarios.node import NodeOptions

    for flag, value in (("--pods", args.pods), ("--cdi-dir", args.cdi_dir), ("--api-server", args.api_server)):
        if value:
            raise UsageError(f"{flag} is for the kubelet alone; with --exec the scenarios have pods and directories")
    if wrong := next(filter(None, map(unknown_code, args.allow or ())), ""):
        raise UsageError(f"--allow: {wrong}")
    if args.timeout is not None and not 0 < args.timeout < float("inf"):
        raise UsageError(f"--timeout: expected seconds above 0, found {args.timeout:g}")
    node = NodeOptions(
        command=args.exec,
        hooks=dict(common.pair(each, "--hook", "fail='rm {dir}/0'") for each in args.hook or ()),
        resources=tuple(args.resource or ()),
        allow=frozenset(args.allow or ()),
        strict=args.strict,
        again=args.restart,
        **({} if args.timeout is None else {"timeout": args.timeout}),
        kubelet_dir=args.kubelet_dir and args.kubelet_dir.absolute(),
        node_name=args.node_name,
        compat=args.compat,
        seed=args.seed,
    )
    as_json = args.output == "json"
    return asyncio.run(scenarios.run(node, args.scenario or (), junit=args.junit, logs=args.logs, as_json=as_json))
