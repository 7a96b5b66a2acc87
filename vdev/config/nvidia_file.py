"""Files for NVIDIA's device plugin: how to recognize them, and how Go reads their keys and scalars.

NVIDIA's plugin turns YAML 1.1 into JSON, and Go's JSON decoder ignores the case of keys.
"""

import re
from collections.abc import Collection, Mapping

from ..model.nvidia_forms import Gfd, Imex
from ..model.problem import KeyPath, did_you_mean
from ..model.section import Section, keys_of
from ..model.spec import Flags, PluginFlags, Resources, Sharing, Spec

SECTIONS = frozenset({"version", "flags", "sharing", "resources", "imex"})
"""The sections of NVIDIA's plugin."""

_OURS = keys_of(Spec) - SECTIONS
_MODELS: Mapping[KeyPath, type[Section]] = {
    ("flags",): Flags,
    ("flags", "plugin"): PluginFlags,
    ("flags", "gfd"): Gfd,
    ("sharing",): Sharing,
    ("resources",): Resources,
    ("imex",): Imex,
}
_KEYS = {(): SECTIONS} | {path: keys_of(model) for path, model in _MODELS.items()}
_SPELLED = {path: {key.lower(): key for key in keys} for path, keys in _KEYS.items()}

MIG_PARTED = frozenset({"version", "mig-configs"})
"""The keys of a file of NVIDIA's mig-parted, which reads YAML with the same Go package."""

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]{1,16})|0[bB]([01]{1,64})|0[oO]?([0-7]{1,22})|(0|[1-9][0-9]{0,19}))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_LONGEST = 64
_MOST = 1e21  # from here on JSON writes an exponent, and Go takes that for a fraction


def is_for_nvidia(keys: Collection[str]) -> bool:
    """Whether a file with these top-level keys is for NVIDIA's plugin: none is a section of vdev, or resembles one."""
    meant = {spelled((), key) for key in keys}
    unknown = meant - SECTIONS
    if not unknown:
        return True
    return bool(meant & SECTIONS - {"version"}) and not any(did_you_mean(key, _OURS) for key in unknown)


def spelled(path: KeyPath, key: str) -> str:
    """Return the key of the mapping at that path as NVIDIA's plugin spells it; an unknown key stays as it is."""
    return _SPELLED.get(path, {}).get(key.lower(), key)


def number_or_boolean(text: str) -> str | None:
    """Return the scalar as Go's YAML package turns it into JSON; None if it is a text, or if vdev reads it alike."""
    if text in _TRUE:
        return "true"
    if text in _FALSE:
        return "false"
    digits = text.replace("_", "")
    if len(text) > _LONGEST or text[:1] not in "+-.0123456789":
        return None
    if found := _WHOLE.fullmatch(digits):
        value = next(int(part, base) for part, base in zip(found.groups()[1:], _BASES, strict=True) if part)
        return str(-value if found[1] == "-" else value)
    if _FLOAT.fullmatch(digits) and (real := float(digits)).is_integer() and abs(real) < _MOST:
        return str(int(real))
    return None
