"""`vdev fleet`: the controller for nodes without a kubelet."""

import argparse
import asyncio
import contextlib
import functools
import gc
import json
import signal
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from ..agent.options import Options
from ..aio.tasks import acting_on, in_background, run_until
from ..config import Loaded
from ..errors import ConfigError, UsageError
from ..model import names
from ..model.fleet import NO_FLEET
from ..model.problem import error
from . import common, options

if TYPE_CHECKING:
    from ..fleet.controller import Fleet


EPILOG = """examples:
  vdev fleet vdev.yaml --kubeconfig ~/.kube/config     until Ctrl-C; an edit of the file applies at once
  vdev fleet vdev.yaml --dry-run                       print every object instead
  vdev fleet vdev.yaml --selector pool=a100            only nodes with this label

The section `fleet` of the file lists the nodes; see docs/fleet.md. Objects stay when the controller ends. Nodes that it
made are deleted when they are removed from the file.
"""
_COLLECTIONS = (50_000, 30)
"""Allocations between two garbage collections, and how many of these look only at new objects. With Python's 700 and
10, collections take a quarter of the CPU time: they scan the documents of thousands of nodes, of which hardly any is
garbage."""
_NAME = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_files(parser)
    parser.add_argument("--dry-run", action="store_true", help="print every object as YAML or JSON, and write nothing")
    parser.add_argument(
        "--selector", "-l", default="", metavar="LABELS", help="only Nodes with these labels, such as pool=a100,zone=b"
    )
    parser.add_argument(
        "--name",
        default="vdev-fleet",
        help="name of this fleet, if a cluster has several; each has its own Nodes [default: vdev-fleet]",
    )
    options.add(parser, "kubeconfig", "context", "http_address", "http_hosts", "run_dir", "fault_injection")
    options.add(parser, "log_level", "log_format")


def run(args: argparse.Namespace) -> int:
    """Run until stopped by a signal, or print the objects."""
    if args.dry_run:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a dry run that is cut short must not exit with 0
    args.config_files = args.files
    chosen = options.read(args)
    load = functools.partial(_load, chosen)
    loaded = load()
    common.complain(loaded.problems)
    selector = dict(common.pair(each, "--selector", "pool=a100") for each in args.selector.split(",") if each)
    if names.value_problem(args.name) or names.node_name_problem(args.name):
        raise UsageError(f"--name: expected at most 63 {_NAME}, such as vdev-fleet, got {args.name!r}")
    if args.dry_run:
        import yaml

        from ..fleet.made_nodes import objects
        from ..fleet.scope import Scope, warnings

        common.complain(warnings(loaded.spec))
        scope = Scope(loaded.spec.fleet, name=args.name, selector=selector)
        found = objects(loaded.spec, scope)  # without existing Nodes that the file selects, which are not known
        if args.output == "json":
            print(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*found]}, indent=2))
        else:
            print(yaml.safe_dump_all(found, explicit_start=True, sort_keys=False, width=160), end="")
        return 0
    server = chosen.needed_api_server
    from ..fleet.controller import Fleet
    from ..kube.api import Api
    from ..kube.connection import Connection
    from ..kube.errors import Unconfigured
    from ..observe import log

    log.configure(level=chosen.log_level, form=chosen.log_format)

    telemetry = loaded.spec.telemetry
    metrics_address = (telemetry.address if telemetry else None) or ""

    async def main() -> None:
        async with contextlib.aclosing(Connection(server)) as connection:
            try:
                await connection.client()
            except Unconfigured as wrong:
                raise UsageError(str(wrong)) from wrong
            fleet = Fleet(chosen, loaded, Api(connection), load=load, selector=selector, name=args.name)
            stop = asyncio.Event()
            async with contextlib.AsyncExitStack() as stack:
                stack.enter_context(acting_on({signal.SIGTERM: stop.set, signal.SIGINT: stop.set}))
                for side in _sides(fleet, chosen, metrics_address):
                    await stack.enter_async_context(in_background(side, name="http"))
                await run_until(stop, fleet.run())

    gc.set_threshold(*_COLLECTIONS)
    asyncio.run(main())
    return 0


def _load(chosen: Options) -> Loaded:
    """Read the files. Raises ConfigError also without a section `fleet`, which would delete all Nodes of the fleet."""
    loaded = chosen.load(chosen.config_files)
    if loaded.spec.fleet is NO_FLEET:
        hint = "give fleet.nodes, see docs/fleet.md; [] for none"
        raise ConfigError(
            (error(str(chosen.config_files[0]), "there is no section fleet, which lists the nodes", hint),)
        )
    return loaded


def _sides(fleet: "Fleet", chosen: Options, metrics: str) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield the HTTP servers: one for the fleet's status, and one for the devices' metrics at the address `metrics`."""
    if not (chosen.http_address or metrics):
        return
    from ..fleet.view import FleetView
    from ..observe import http  # it imports the web server

    view = FleetView(fleet)
    if chosen.http_address:
        serve = functools.partial(http.serve, chosen.http_address, view.application(), hosts=chosen.http_hosts)
        yield fleet.retrier.supervise("serving HTTP", serve)
    if metrics:
        what, app = "metrics of devices", http.exporter(view.devices_page, lambda: [*view.measured_nodes])
        serve = functools.partial(
            http.serve, metrics, app, what=what, option="telemetry.address", hosts=chosen.http_hosts
        )
        yield fleet.retrier.supervise(f"serving {what}", serve)
