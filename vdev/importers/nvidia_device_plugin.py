"""The configurations of NVIDIA's device plugin for its config-manager, in a ConfigMap or in Helm values.

vdev can read each of them unchanged. An import makes a file for each, without keys that NVIDIA's plugin ignores, and
with devices if the options name them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ..config.parser import SECTIONS
from .draft import Draft, Item, mapping
from .sources import Form, ImportOptions, ImportSource, as_yaml_1_1, trees

_LABEL = "nvidia.com/device-plugin.config"
_HELM_FLAGS = {
    "migStrategy": ("migStrategy",),
    "failOnInitError": ("failOnInitError",),
    "compatWithCPUManager": ("plugin", "passDeviceSpecs"),
    "deviceListStrategy": ("plugin", "deviceListStrategy"),
    "deviceIDStrategy": ("plugin", "deviceIDStrategy"),
    "nvidiaDriverRoot": ("nvidiaDriverRoot",),
    "nvidiaDevRoot": ("nvidiaDevRoot",),
    "gdrcopyEnabled": ("gdrcopyEnabled",),
    "gdsEnabled": ("gdsEnabled",),
    "mofedEnabled": ("mofedEnabled",),
    "deviceDiscoveryStrategy": ("deviceDiscoveryStrategy",),
}
"""Values of the chart, and their flags. The chart makes environment variables of them, which override the file."""


def is_wrapped(content: Any) -> bool:
    """Whether the content is Helm values with configurations."""
    named = _named(content)
    return bool(named) and all(map(_is_one, named.values()))


def _named(content: Any) -> dict[str, Any]:
    """Return the configurations in Helm values by name, which may be texts."""
    named = mapping(mapping(mapping(content).get("config")).get("map"))
    return {key: next(iter(trees(each, key)), None) if isinstance(each, str) else each for key, each in named.items()}


def _is_one(content: Any) -> bool:
    return isinstance(content, dict) and bool(content) and content.keys() <= SECTIONS


def _files(found: Sequence[ImportSource]) -> Iterator[tuple[str, Any]]:
    """Yield a file for each configuration, with the Helm values that contain it."""
    for source in found:
        values = source.content if is_wrapped(source.content) else {}
        for name, content in (_named(values) or {source.key: source.content}).items():
            yield name, (content, values)


def _fill(draft: Draft, given: tuple[Any, Any], options: ImportOptions) -> None:
    content, values = (Item(draft, each) for each in given)
    if draft.name:
        draft.remarks.append(f"A node with the label {_LABEL}={draft.name} uses it, also from a directory of vdev.")
    if options.preset:
        virtual = {"preset": options.preset} | ({"count": options.count} if options.count else {})
        draft.entry({"name": "gpu", "resource": "nvidia.com/gpu", "virtual": virtual})
    else:
        draft.note("", "the result has no devices: give --preset and --count, or give vdev a second file with devices")
    content.ignore("version")
    values.item("config").ignore("map")
    draft.sections["flags"] = as_yaml_1_1(_flags(mapping(content.value("flags")), values))
    resources = content.item("resources")
    for kind in ("gpus", "mig"):
        if resources.value(kind):
            draft.omit(resources.at(kind), "NVIDIA's plugin ignores it; vdev would follow it")
    if content.value("imex"):
        draft.omit("imex", "virtual devices have no IMEX channels")
    _sharing(draft, content.item("sharing"))


FORM = Form(
    title="NVIDIA's device plugin",
    recognizes=lambda content: _is_one(content) or is_wrapped(content),
    files=_files,
    fill=_fill,
)


def _flags(flags: dict[str, Any], values: Item) -> dict[str, Any]:
    """Return the flags of the configuration, overridden by Helm values."""
    flags = dict(flags)
    for key, (*section, flag) in _HELM_FLAGS.items():
        value = values.value(key)
        # The chart passes it as an environment variable, so quotes make no difference.
        value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        if value is not None and section:
            flags["plugin"] = {**mapping(flags.get("plugin")), flag: value}
        elif value is not None:
            flags[flag] = value
    return flags


def _sharing(draft: Draft, sharing: Item) -> None:
    kind = "mps" if "mps" in sharing.given else "timeSlicing"  # NVIDIA's plugin prefers mps
    if sharing.value("timeSlicing") is not None and kind == "mps":
        draft.omit(sharing.at("timeSlicing"), "NVIDIA's plugin uses mps if both are given")
    block = sharing.item(kind)
    items = []
    for item in block.items("resources"):
        for key, default in (("rename", ""), ("devices", "all")):
            value = item.given.pop(key, None)
            if value not in (None, default):
                draft.omit(item.at(key), f"{value!r} is ignored by NVIDIA's plugin; vdev would follow it")
        items.append(as_yaml_1_1(item.given))
        item.given = {}
    if items:
        draft.sections["sharing"] = {kind: {**as_yaml_1_1(block.given), "resources": items}}
    block.given = {}
