"""The configurations of NVIDIA's device plugin that its config-manager chooses among, in a ConfigMap or in Helm values.

vdev takes each of them as it is. What comes of an import is a file for each, without what that plugin ignores, and with
devices where somebody says which.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .. import config
from ..errors import ConfigError
from .draft import Draft, ImportSource, Wishes, listed, mapping

_SECTIONS = frozenset({"version", "flags", "sharing", "resources", "imex"})
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
"""Values of the chart, and the flags that they are. The chart makes variables of them, which win over the file."""
_BOOLEANS = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}


def recognises(content: Any) -> bool:
    """Whether it is a configuration of the plugin, or Helm values with some."""
    return is_wrapped(content) or _is_one(content)


def is_wrapped(content: Any) -> bool:
    """Whether it is Helm values with configurations."""
    named = mapping(mapping(content).get("config")).get("map")
    return isinstance(named, dict) and bool(named) and all(_is_one(_read(each, key)) for key, each in named.items())


def _is_one(content: Any) -> bool:
    return isinstance(content, dict) and bool(content) and content.keys() <= _SECTIONS


def _read(value: Any, key: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return next(iter(config.trees(value, str(key))), None)
    except ConfigError:
        return None


def drafts(found: Sequence[ImportSource], wishes: Wishes) -> list[Draft]:
    """One file for each configuration."""
    made = []
    for source in found:
        if not is_wrapped(source.content):
            made.append(_draft(source.key, mapping(source.content), {}, wishes))
            continue
        values = source.content
        for key, each in values["config"]["map"].items():
            draft = _draft(str(key), mapping(_read(each, key)), values, wishes)
            draft.unread("config", values["config"], ("map",))
            draft.unread("", values, ("config", *_HELM_FLAGS))
            made.append(draft)
    return made


def _draft(name: str, content: dict[str, Any], values: dict[str, Any], wishes: Wishes) -> Draft:
    """The file of a configuration, beside which there may be Helm values."""
    draft = Draft("Made by vdev import of a configuration of NVIDIA's device plugin.", name)
    if name:
        draft.remarks.append(f"A node with the label {_LABEL}={name} takes it, also from a directory of vdev.")
    if wishes.preset:
        virtual = {"preset": wishes.preset} | ({"count": wishes.count} if wishes.count else {})
        draft.entry({"name": "gpu", "resource": "nvidia.com/gpu", "virtual": virtual})
    else:
        draft.told("", "it says nothing of devices: join it with a file of devices, or say --preset and --count")
    draft.flags = _plain(_flags(mapping(content.get("flags")), values))
    for kind in ("gpus", "mig"):
        if listed(mapping(content.get("resources")).get(kind)):
            draft.lost(f"resources.{kind}", "NVIDIA's plugin ignores it; vdev would follow it")
    draft.unread("resources", mapping(content.get("resources")), ("gpus", "mig"))
    draft.unread("sharing", mapping(content.get("sharing")), ("mps", "timeSlicing"))
    if mapping(content.get("imex")):
        draft.lost("imex", "virtual devices have no IMEX channels")
    _sharing(draft, mapping(content.get("sharing")))
    return draft


def _flags(flags: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Those of the configuration, with the Helm values in place of them."""
    flags = dict(flags)
    for key, (*section, flag) in _HELM_FLAGS.items():
        value = values.get(key)
        # The chart makes a variable of it, so that quotes make no difference.
        value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        if value is not None and section:
            flags["plugin"] = {**mapping(flags.get("plugin")), flag: value}
        elif value is not None:
            flags[flag] = value
    return flags


def _sharing(draft: Draft, sharing: dict[str, Any]) -> None:
    kind = "mps" if "mps" in sharing else "timeSlicing"  # of both, mps wins there
    block = mapping(sharing.get(kind))
    if "mps" in sharing and "timeSlicing" in sharing:
        draft.lost("sharing.timeSlicing", "NVIDIA's plugin takes mps, where both are there")
    draft.kind = kind
    draft.sharing = _plain({key: value for key, value in block.items() if key != "resources"})
    for place, item in enumerate(listed(block.get("resources"))):
        where = f"sharing.{kind}.resources[{place}]"
        for key, value in _ignored(mapping(item)):
            draft.lost(f"{where}.{key}", f"{value!r} is ignored by NVIDIA's plugin; vdev would follow it")
        body = {key: value for key, value in mapping(item).items() if key not in ("rename", "devices")}
        draft.shared.append(_plain(body))


def _ignored(item: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if item.get("rename"):
        yield "rename", item["rename"]
    if item.get("devices") not in (None, "all"):
        yield "devices", item["devices"]


def _plain(tree: Any) -> Any:
    """The values as a strict reader takes them: booleans of YAML 1.1 in today's words."""
    match tree:
        case dict():
            return {key: _plain(value) for key, value in tree.items() if value is not None}
        case list():
            return [_plain(each) for each in tree]
        case str() if not isinstance(tree, config.Plain) and tree.lower() in _BOOLEANS:
            return _BOOLEANS[tree.lower()]
    return tree
