"""`vdev fault`: list, inject, end and trigger faults in the running plugin."""

import argparse
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..config import text_of
from ..errors import UsageError
from . import common

EPILOG = """examples:
  vdev fault list
  vdev fault add '{name: sick, devices: ["acme/0"], health: Unhealthy, reason: "XID 79", for: 30s}'
  vdev fault add --file drill.yaml     a file with `rules: [...]`; - reads standard input
  vdev fault trigger dead-gpu          start a rule's fault now
  vdev fault clear sick                end it, and undo what it did
  vdev fault clear --all

The plugin accepts this only if it runs with --enable-fault-injection. Rules have the form of those under `faults` in
the configuration file; see docs/failure-testing.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = common.add_actions(parser, "list", "add", "clear", "trigger")
    common.add_action(actions, "list", "show every rule and its state", "run_dir")
    add = common.add_action(actions, "add", "add rules", "run_dir")
    add.add_argument("rule", nargs="?", metavar="YAML", help="one rule, or a mapping with `rules`")
    add.add_argument("-f", "--file", type=Path, metavar="FILE", help="read the rules from this file; - is stdin")
    clear = common.add_action(actions, "clear", "end a rule, and undo what it did", "run_dir")
    clear.add_argument("name", nargs="?", metavar="NAME", help="the rule")
    clear.add_argument("--all", action="store_true", help="end all of them")
    trigger = common.add_action(actions, "trigger", "start a rule's fault now", "run_dir")
    trigger.add_argument("name", metavar="NAME", help="the rule")


def run(args: argparse.Namespace) -> int:
    """Send the request to the running plugin, and print its answer."""
    request = {"do": f"fault-{args.action}"}
    if args.action == "add":
        request["rules"] = _rules(args)
    elif args.action == "clear":
        if args.all == bool(args.name):
            raise UsageError("give the name of a fault, or --all")
        request |= {"all": args.all, "name": args.name}
    elif args.action == "trigger":
        request["name"] = args.name
    answer = common.ask(args, request)
    common.show(args, answer, _lines(answer) if args.action == "list" else done(answer))
    return 0


def _rules(args: argparse.Namespace) -> str:
    if (args.rule is None) == (args.file is None):
        raise UsageError("give one rule as an argument, or --file FILE")
    if args.file is None:
        return str(args.rule)
    return text_of(Path("/dev/stdin") if str(args.file) == "-" else args.file)


def done(answer: dict[str, Any]) -> Iterator[str]:
    (verb, names), *_ = answer.items()
    listed = names if isinstance(names, list) else [names]
    yield f"{verb}: {', '.join(listed) or 'nothing'}"


def _lines(faults: dict[str, Any]) -> Iterator[str]:
    if not faults["rules"]:
        yield "no fault rules" + ("" if faults["enabled"] else "; --enable-fault-injection is off")
        return
    columns: common.Columns = {
        "NAME": "name",
        "STATE": "state",
        "DEVICES": lambda each: len(each["devices"]) if each["kind"] == "device" else None,
        "CHANGES IN": lambda each: None if each["changesIn"] is None else timedelta(seconds=round(each["changesIn"])),
        "INJECTED": lambda each: sum(each["injectedIn"].values()),
        "FROM": "source",
        "WHAT": "what",
    }
    yield from common.table(columns, faults["rules"], indent="")
