"""Writes the reference pages from the code that they describe; `--check` only says whether they are up to date.

reference/configuration.md comes from the configuration file's models, reference/command-line.md from the commands and
the table of options, reference/presets.md from the presets, metrics.md from the metrics' own table.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from vdev import cli, config
from vdev.agent.options import Group
from vdev.cli.options import OPTIONS
from vdev.fleet.view import METRICS as FLEET_METRICS
from vdev.model.geometry import Geometry, most_of
from vdev.model.quantity import written
from vdev.observe.metrics import Metrics

DOCS = Path(__file__).parent
MADE = "<!-- Made by docs/generate.py; run `make docs`. -->"


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is stale")
    check = parser.parse_args(arguments).check
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        if check:
            sys.stderr.write(f"{path.relative_to(DOCS.parent)} is stale: run make docs\n")
        else:
            path.write_text(text)
    return int(check and bool(stale))


def pages() -> dict[Path, str]:
    """Each page's text."""
    return {
        DOCS / "reference" / "configuration.md": "\n".join(configuration()) + "\n",
        DOCS / "reference" / "command-line.md": "\n".join(command_line()) + "\n",
        DOCS / "reference" / "presets.md": "\n".join(presets()) + "\n",
        DOCS / "metrics.md": "\n".join(metrics()) + "\n",
    }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |"
    yield ""


# --- the configuration file ------------------------------------------------------------------------------------------


def configuration() -> Iterator[str]:
    """The page of the configuration file: one table per object, from the top down."""
    schema = config.json_schema()
    kinds = schema["$defs"]
    yield from ("# The configuration file", "", MADE, "")
    yield "All keys of the file. Unknown keys are errors. `vdev schema` prints the schema for editors, and the"
    yield "[guides](../README.md) show how to use the keys."
    yield ""
    yield from _object("The file", schema, kinds)
    for name in _reached(schema, kinds):
        if "properties" in kinds[name]:
            yield from _object(name, kinds[name], kinds)
        elif "enum" in kinds[name]:
            yield from (f"## {name}", "", kinds[name].get("description", ""), "")
            yield from (", ".join(f"`{each}`" for each in kinds[name]["enum"]), "")
        else:
            yield from (f"## {name}", "", kinds[name].get("description", ""), "", _type(kinds[name], kinds), "")


def _object(name: str, schema: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {name}", "", schema.get("description", ""), "")
    required = schema.get("required", [])
    rows = []
    for key, value in schema["properties"].items():
        default = "**required**" if key in required else _default(value.get("default"))
        referred = kinds.get(str(value.get("$ref", "")).rpartition("/")[2], {})
        meaning = value.get("description") or referred.get("description", "")
        rows.append((f"`{key}`", _type(value, kinds), default, meaning))
    yield from table(("key", "type", "default", "meaning"), rows)


def _default(value: Any) -> str:
    if value is None or isinstance(value, dict) or value == "":
        return "-"
    return f"`{json.dumps(value)}`"


def _type(schema: Mapping[str, Any], kinds: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": ref}:
            name = ref.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": [item, {"type": "array", "items": items}]} if item == items:
            return f"one or a list of {_type(items, kinds)}"
        case {"anyOf": options} | {"oneOf": options}:
            return " or ".join(dict.fromkeys(_type(each, kinds) for each in options if each.get("type") != "null"))
        case {"enum": words}:
            return " or ".join(f"`{word}`" for word in words)
        case {"const": word}:
            return f"`{word}`"
        case {"type": "array", "items": items}:
            return f"list of {_type(items, kinds)}"
        case {"type": "object", "additionalProperties": dict(values)} if values:
            return f"mapping to {_type(values, kinds)}"
        case {"type": [*names]}:
            return " or ".join(names)
        case {"type": name}:
            return str(name)
    return "anything"


def _reached(schema: Mapping[str, Any], kinds: Mapping[str, Any]) -> list[str]:
    """The names of all objects, in the order in which a reader meets them."""
    found: dict[str, None] = {}

    def visit(value: Any) -> None:
        if isinstance(value, list):
            for each in value:
                visit(each)
        elif isinstance(value, dict):
            name = str(value.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found[name] = None
                visit(kinds[name])
            for key, each in value.items():
                if key != "$defs":
                    visit(each)

    visit(schema)
    return list(found)


# --- the command line ------------------------------------------------------------------------------------------------


def command_line() -> Iterator[str]:
    """The page of the commands and their options."""
    yield from ("# The command line", "", MADE, "")
    yield "Exit codes: 0 for success (also after SIGTERM), 1 for a failure at run time, 2 for a mistake in the"
    yield "configuration or the usage. A flag overrides the environment, which overrides the file and the defaults."
    yield ""
    for name, summary in cli.COMMANDS.items():
        yield from (f"## vdev {name}", "", summary[0].upper() + summary[1:] + ".", "")
        yield from _arguments(name, cli.subcommands(cli.parser_of([name])[0])[name])
    yield from ("## Options of vdev run", "")
    yield "A value is written `--flag VALUE` or `--flag=VALUE`. If the default is true or false, the flag alone means"
    yield "true, and `--flag=false` means false. For a list, use commas or repeat the flag."
    yield ""
    for group in Group:
        yield from (f"### {_heading(group)}", "")
        rows = []
        for option in OPTIONS:
            if option.group is group:
                value = "" if option.is_boolean else f" {option.metavar}"
                flags = ", ".join(f"`{each}{value}`" for each in option.flags)
                variables = ", ".join(f"`{each}`" for each in option.variables)
                choices = f"; {' or '.join(f'`{each}`' for each in option.choices)}" if option.choices else ""
                rows.append((flags, variables, option.default or "-", option.help + choices))
        yield from table(("flag", "environment", "default", "meaning"), rows)


def _arguments(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """A command's own arguments, without those of the plugin's table; then those of its actions."""
    groups = {option.field: option.group for option in OPTIONS}
    shared = set(Group) if name == "run" else {Group.PLUGIN, Group.PRESETS, Group.UNUSED}
    hidden = {"help", *(field for field, group in groups.items() if group in shared)}
    yield from (f"`{_usage(name, parser)}`", "")
    rows = [_argument(each) for each in cli.arguments_of(parser) if each.dest not in hidden]
    if rows:
        yield from table(("argument", "meaning"), rows)
    known = {groups[each.dest] for each in cli.arguments_of(parser) if each.dest in hidden & groups.keys()}
    if known:
        heads = [_heading(group) for group in Group if group in known]
        links = (f"[{head.partition(' (')[0].lower()}](#{_anchor(head)})" for head in heads)
        yield from (f"Further options are below: {'; '.join(links)}.", "")
    for action, inner in cli.subcommands(parser).items():
        yield from (f"### vdev {name} {action}", "", inner.description or "", "")
        yield from _arguments(f"{name} {action}", inner)


def _usage(name: str, parser: argparse.ArgumentParser) -> str:
    """One line, with what has no dash spelled out."""
    if parser.usage:
        return parser.usage
    own = [each for each in cli.arguments_of(parser) if each.dest != "help"]
    options = ["[option ...]"] if any(each.option_strings for each in own) else []
    words = [_argument(each)[0].strip("`") for each in own if not each.option_strings]
    return " ".join((f"vdev {name}", *(["ACTION"] if cli.subcommands(parser) else options), *words))


def _argument(action: argparse.Action) -> tuple[str, str]:
    """A row: the names with the value that they take, and what it means."""
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    value = "" if action.nargs == 0 else f" [{metavar}]" if action.nargs == "?" else f" {metavar}"
    many = " …" if action.nargs in {"+", "*"} else ""
    if action.choices and action.option_strings:
        value = value.replace(metavar, "|".join(action.choices))
    names = ", ".join(f"`{each}{value}{many}`" for each in action.option_strings) or f"`{value.strip()}{many}`"
    assert action.help, f"{names} has no help"
    return names, action.help.replace("%%", "%")


def _heading(group: Group) -> str:
    return f"{group.value[0].upper()}{group.value[1:]}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# --- presets ---------------------------------------------------------------------------------------------------------


def presets() -> Iterator[str]:
    """The page of the presets: all of them, then how each can be partitioned."""
    known = [config.load_preset(name) for name in config.preset_names()]
    yield from ("# Presets", "", MADE, "")
    yield "Models of devices, and of whole nodes of them, for `virtual: {preset: NAME}`. `vdev presets NAME` shows one"
    yield "with its attributes. Put [your own presets](../partitions.md#your-own-device) into `presetsDir`. The last"
    yield "column names values without a confirmed source."
    yield ""
    head = ("preset", "what it is", "resource", "memory", "devices", "not confirmed")
    rows = []
    for each in known:
        count = str(each.count) if each.count else "any number"
        memory = written(each.memory) if each.memory else "-"
        doubts = ", ".join(f"`{key}`" for key in each.unverified) or "-"
        rows.append((f"`{each.name}`", each.description, f"`{each.resource}`", memory, count, doubts))
    yield from table(head, rows)
    yield from ("## Partitions", "")
    yield "`most` is how many partitions of a profile fit on one device. Every profile has a layout `all-PROFILE`."
    yield ""
    geometries: list[Geometry] = []
    for each in known:
        if each.partitioning and each.partitioning not in geometries:
            geometries.append(each.partitioning)
    for geometry in geometries:
        names = [f"`{each.name}`" for each in known if each.partitioning == geometry]
        compute = f" and {geometry.compute} compute slices" if geometry.compute else ""
        yield from (f"### {', '.join(names)}", "", f"{geometry.slices} memory slices{compute}.", "")
        parts = [
            (f"`{each.name}`", written(each.memory), *map(str, (each.slices, most_of(geometry, each))), starts)
            for each in geometry.profiles.values()
            for starts in [", ".join(map(str, geometry.starts(each)))]
        ]
        yield from table(("profile", "memory", "slices", "most", "may start at"), parts)
        for name, layout in geometry.layouts.items():
            yield from (f"Layout `{name}`: {', '.join(f'`{part}`' for part in layout)}.", "")


# --- metrics ---------------------------------------------------------------------------------------------------------


def metrics() -> Iterator[str]:
    """The page of the metrics."""
    yield from ("# Metrics", "", MADE, "")
    yield "Served on `/metrics` of `--http-address`, for Prometheus and OpenMetrics. Label values are bounded:"
    yield "resources, kinds and RPC names, never devices or pods. A dashboard and alert rules are in"
    yield "[deploy/monitoring](../deploy/monitoring)."
    yield ""
    rows = []
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            suffix = "_total" if family.type == "counter" else ""
            labels = ", ".join(f"`{each}`" for each in metric._labelnames) or "-"  # no public name
            rows.append((f"`{family.name}{suffix}`", family.type, labels, family.documentation))
    yield from table(("name", "type", "labels", "meaning"), rows)
    yield "The usual metrics of a process are there too: `process_cpu_seconds_total`, `process_resident_memory_bytes`,"
    yield "`process_virtual_memory_bytes`, `process_open_fds`, `process_max_fds` and `process_start_time_seconds`."
    yield ""
    yield "The label `node` is added by the scrape configuration: see [watching](watching.md#prometheus)."
    yield from ("", "## Metrics of a fleet", "")
    yield "The controller for [nodes without a kubelet](fleet.md) serves these on its `/metrics`, and those of a"
    yield "process. Metrics of its devices have another address: see [fleet](fleet.md#what-the-devices-measure)."
    yield ""
    rows = []
    for name, (names, text) in FLEET_METRICS.items():
        labels = ", ".join(f"`{each}`" for each in names) or "-"
        rows.append((f"`vdev_{name}`", "counter" if name.endswith("_total") else "gauge", labels, text))
    yield from table(("name", "type", "labels", "meaning"), rows)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
