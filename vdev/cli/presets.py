"""`vdev presets`: the built-in models of devices and nodes."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from .. import config
from ..agent.options import Group
from ..model.geometry import Geometry, Profile, most_of
from ..model.quantity import written
from . import common, options

EPILOG = """examples:
  vdev presets                      all of them
  vdev presets a100-sxm4-40gb       one, with its profiles and layouts
  vdev presets --output json        for programs
  vdev presets --presets-dir ./my   with your own presets too

A configuration that uses one:
  devices:
    - name: a100
      resource: nvidia.com/gpu
      virtual: {preset: a100-sxm4-40gb, count: 2}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the preset to show in full; default: a list of all")
    options.add_all(parser, (Group.PRESETS,))
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    files = config.FileTexts(preset_dirs=tuple(options.read(args).preset_dirs))
    if args.name:
        preset = config.load_preset(args.name, files)
        common.show(args, document(preset), _lines(preset))
    else:
        presets = [config.load_preset(each, files) for each in config.preset_names(files)]
        common.show(args, [document(each) for each in presets], _overview(presets))
    return 0


def _overview(presets: Sequence[config.Preset]) -> Iterator[str]:
    columns: common.Columns = {
        "NAME": lambda each: each.name,
        "WHAT IT IS": lambda each: each.description,
        "RESOURCE": lambda each: each.resource,
        "MEMORY": lambda each: _memory(each.memory),
        "DEVICES": _count,
    }
    yield from common.table(columns, presets, indent="")
    yield "\nvdev presets NAME shows one with its attributes, profiles and layouts"


def document(preset: config.Preset) -> dict[str, Any]:
    """A preset as JSON. `memory` is in bytes; missing values are null, such as the `count` of a single device."""
    geometry = preset.partitioning
    return {
        "name": preset.name,
        "description": preset.description,
        "resource": preset.resource,
        "count": preset.count or None,
        "memory": preset.memory or None,
        "numa": list(preset.numa),
        "attributes": dict(preset.attributes),
        "deviceNodes": [each.path.source for each in preset.device_nodes],
        "partitioning": geometry
        and {
            "memorySlices": geometry.slices,
            "computeSlices": geometry.compute,
            "wholeDevice": geometry.whole_device,
            "profiles": [_profile_document(geometry, each) for each in geometry.profiles.values()],
            "layouts": {name: list(parts) for name, parts in geometry.layouts.items()},
        },
        "unverified": list(preset.unverified),
    }


def _profile_document(geometry: Geometry, profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "id": profile.id,
        "memory": profile.memory,
        "memorySlices": profile.slices,
        "computeSlices": profile.compute,
        "starts": list(geometry.starts(profile)),
        "most": most_of(geometry, profile),
    }


def _memory(amount: int) -> str:
    return written(amount) if amount else "-"


def _count(preset: config.Preset) -> str:
    return f"{preset.count} on a node" if preset.count else "any number"


def _lines(preset: config.Preset) -> Iterator[str]:
    yield f"{preset.name}: {preset.description}\n"
    facts = [
        ("resource", preset.resource or "none; the entry must set it"),
        ("memory", f"{_memory(preset.memory)} each" if preset.memory else "none; the entry can set it"),
        ("devices", _count(preset)),
        ("NUMA nodes", ", ".join(map(str, preset.numa))),
        ("device nodes", ", ".join(each.path.source for each in preset.device_nodes)),
        ("not confirmed", ", ".join(preset.unverified)),
    ]
    for name, value in facts:
        if value:
            yield f"  {name:<14}{value}"
    yield "\nattributes, for templates as {attributes.NAME}"
    yield from common.table({"NAME": 0, "VALUE": 1}, [*preset.attributes.items()])
    if preset.partitioning:
        yield from _geometry_lines(preset.partitioning)


def _geometry_lines(geometry: Geometry) -> Iterator[str]:
    compute = f" and {geometry.compute} compute slices" if geometry.compute else ""
    yield f"\nprofiles, on {geometry.slices} memory slices{compute}"
    columns: common.Columns = {
        "PROFILE": lambda each: each.name,
        "MEMORY": lambda each: written(each.memory),
        "SLICES": lambda each: each.slices,
        "MOST": lambda each: most_of(geometry, each),
        "MAY START AT": geometry.starts,
    }
    yield from common.table(columns, [*geometry.profiles.values()])
    yield "\nlayouts by name"
    layouts = {"all-PROFILE": ("as many of the profile as fit",), **geometry.layouts}
    yield from common.table({"LAYOUT": 0, "PARTITIONS": 1}, [*layouts.items()])
