"""`vdev fault`: see, inject, end and trigger failures in the running plugin."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from ..control import command_socket
from ..errors import UsageError
from . import common, options, timeline

EPILOG = """examples:
  vdev fault list
  vdev fault add '{name: sick, devices: ["acme/0"], health: Unhealthy, reason: "XID 79", for: 30s}'
  vdev fault add --file drill.yaml     a file with `rules: [...]`; - reads standard input
  vdev fault trigger dead-gpu          let a rule's fault happen now
  vdev fault clear sick                end it, and heal what it broke
  vdev fault clear --all

The plugin takes faults from people only when it runs with --enable-fault-injection. Rules are written as under `faults`
in the configuration; docs/failure-testing.md shows how.
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "fault",
        help="inject, list and end failures in the running plugin",
        description="Failures on demand in the running plugin.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    _action(actions, "list", "show every rule, and whether it is in force")
    add = _action(actions, "add", "add rules to those in force")
    add.add_argument("rule", nargs="?", metavar="YAML", help="one rule, or a mapping with `rules`")
    add.add_argument("-f", "--file", type=Path, metavar="FILE", help="read it from this file; - is standard input")
    clear = _action(actions, "clear", "end a rule, and heal what it broke")
    clear.add_argument("name", nargs="?", metavar="NAME", help="the rule")
    clear.add_argument("--all", action="store_true", help="end all of them")
    trigger = _action(actions, "trigger", "let a rule's fault happen now")
    trigger.add_argument("name", metavar="NAME", help="the rule")


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".")
    options.add_one(parser, "run_dir")
    common.add_output(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Ask the running plugin; 0 when it did as asked."""
    if args.action is None:
        raise UsageError("which action? expected list, add, clear or trigger; see vdev fault --help")
    answer = asyncio.run(command_socket.ask(options.read(args).run_dir, _request(args)))
    if args.output == "json":
        print(json.dumps(answer, indent=2))
    elif args.action == "list":
        show(answer)
    else:
        print(done(answer))
    return 0


def _request(args: argparse.Namespace) -> dict[str, Any]:
    match args.action:
        case "add":
            return {"do": "fault-add", "rules": _rules(args)}
        case "clear":
            if args.all == bool(args.name):
                raise UsageError("which fault? give its name, or --all")
            return {"do": "fault-clear", "all": True} if args.all else {"do": "fault-clear", "name": args.name}
        case "trigger":
            return {"do": "fault-trigger", "name": args.name}
        case _:
            return {"do": "fault-list"}


def _rules(args: argparse.Namespace) -> str:
    if (args.rule is None) == (args.file is None):
        raise UsageError("give one rule as an argument, or --file FILE")
    if args.file is None:
        return str(args.rule)
    if str(args.file) == "-":
        return sys.stdin.read()
    try:
        return str(args.file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {args.file}: {error}") from error


def done(answer: dict[str, Any]) -> str:
    """What was done, in a line."""
    (verb, names), *_ = answer.items()
    listed = names if isinstance(names, list) else [names]
    return f"{verb}: {', '.join(listed) or 'nothing'}"


def _injected(times: dict[str, int]) -> str:
    """How many times, by resource where there are several: each of them counts."""
    total = str(sum(times.values()))
    return total if len(times) < 2 else f"{total} ({', '.join(f'{name} {n}' for name, n in times.items())})"  # noqa: PLR2004  # several


def show(faults: dict[str, Any]) -> None:
    """Print the rules as a table."""
    if not faults["rules"]:
        print("no fault rules" + ("" if faults["enabled"] else "; this plugin takes none from people"))
        return
    rows = [
        (
            each["name"],
            each["state"],
            "-" if each["changesIn"] is None else timeline.clock(each["changesIn"]),
            _injected(each["injectedIn"]),
            each["source"],
            each["what"],
        )
        for each in faults["rules"]
    ]
    common.print_table(("NAME", "STATE", "CHANGES IN", "INJECTED", "FROM", "WHAT"), rows)
