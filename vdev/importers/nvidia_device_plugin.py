"""The configurations of NVIDIA's device plugin for its config-manager, in a ConfigMap or in Helm values.

vdev can read each of them unchanged. An import makes a file of each, without the keys that NVIDIA's plugin ignores, and
with devices if the options name them.
"""

from collections.abc import Sequence
from typing import Any

from .draft import Draft, keys
from .sources import ImportOptions, ImportSource, as_yaml_1_1, listed, mapping, trees

TITLE = "NVIDIA's device plugin"
_CONFIGURATION = keys(*("version", "flags", "imex"), resources=keys("gpus", "mig"), sharing=keys("mps", "timeSlicing"))
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


def recognizes(content: Any) -> bool:
    """Whether it is a configuration of the plugin, or Helm values with some."""
    return is_wrapped(content) or _is_one(content)


def is_wrapped(content: Any) -> bool:
    """Whether it is Helm values with configurations."""
    named = mapping(mapping(content).get("config")).get("map")
    return (
        isinstance(named, dict) and bool(named) and all(_is_one(_read(each, str(key))) for key, each in named.items())
    )


def _is_one(content: Any) -> bool:
    return isinstance(content, dict) and bool(content) and content.keys() <= _CONFIGURATION.keys()


def _read(value: Any, key: str) -> Any:
    return next(iter(trees(value, key)), None) if isinstance(value, str) else value


def drafts(found: Sequence[ImportSource], options: ImportOptions) -> list[Draft]:
    """One file for each configuration."""
    made = []
    for source in found:
        if not is_wrapped(source.content):
            made.append(_draft(source.key, mapping(source.content), {}, options))
            continue
        values = source.content
        for key, each in values["config"]["map"].items():
            draft = _draft(str(key), mapping(_read(each, str(key))), values, options)
            draft.name_unread(values, keys(*_HELM_FLAGS, config=keys("map")))
            made.append(draft)
    return made


def _draft(name: str, content: dict[str, Any], values: dict[str, Any], options: ImportOptions) -> Draft:
    """The file of one configuration. `values` are Helm values beside it."""
    draft = Draft("Made by vdev import of a configuration of NVIDIA's device plugin.", name)
    if name:
        draft.remarks.append(f"A node with the label {_LABEL}={name} uses it, also from a directory of vdev.")
    if options.preset:
        virtual = {"preset": options.preset} | ({"count": options.count} if options.count else {})
        draft.entry({"name": "gpu", "resource": "nvidia.com/gpu", "virtual": virtual})
    else:
        draft.note("", "it has no devices: join it with a file of devices, or give --preset and --count")
    draft.flags = as_yaml_1_1(_flags(mapping(content.get("flags")), values))
    for kind in ("gpus", "mig"):
        if listed(mapping(content.get("resources")).get(kind)):
            draft.omit(f"resources.{kind}", "NVIDIA's plugin ignores it; vdev would follow it")
    draft.name_unread(content, _CONFIGURATION)
    if mapping(content.get("imex")):
        draft.omit("imex", "virtual devices have no IMEX channels")
    _sharing(draft, mapping(content.get("sharing")))
    return draft


def _flags(flags: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The flags of the configuration, overridden by Helm values."""
    flags = dict(flags)
    for key, (*section, flag) in _HELM_FLAGS.items():
        value = values.get(key)
        # The chart makes an environment variable of it, so quotes make no difference.
        value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        if value is not None and section:
            flags["plugin"] = {**mapping(flags.get("plugin")), flag: value}
        elif value is not None:
            flags[flag] = value
    return flags


def _sharing(draft: Draft, sharing: dict[str, Any]) -> None:
    kind = "mps" if "mps" in sharing else "timeSlicing"  # NVIDIA's plugin prefers mps
    block = mapping(sharing.get(kind))
    if "mps" in sharing and "timeSlicing" in sharing:
        draft.omit("sharing.timeSlicing", "NVIDIA's plugin uses mps if both are given")
    draft.kind = kind
    draft.sharing = as_yaml_1_1({key: value for key, value in block.items() if key != "resources"})
    for place, item in enumerate(listed(block.get("resources"))):
        where = f"sharing.{kind}.resources[{place}]"
        body = dict(mapping(item))
        for key in ("rename", "devices"):
            value = body.pop(key, None)
            if value not in ((None, "all") if key == "devices" else (None, "")):
                draft.omit(f"{where}.{key}", f"{value!r} is ignored by NVIDIA's plugin; vdev would follow it")
        draft.shared.append(as_yaml_1_1(body))
