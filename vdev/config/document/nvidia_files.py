"""Which files are those of NVIDIA's own plugin, how it spells the keys that it takes in any case, and how it reads
unquoted scalars.

Such a file is read as that plugin reads it: what it ignores is a warning, not an error. Go's JSON takes keys in any
case; in the blocks of `sharing` and the items of `resources` NVIDIA's own code looks them up, as they are written.
Unquoted scalars go by the rules of YAML 1.1 in Go, by way of JSON: `yes` and `on` are booleans, `0x10`, `010` and
`1_000` are whole numbers, and so is `2.0`, which JSON writes as 2.
Facts: NVIDIA/k8s-device-plugin v0.20.0, `api/config/v1`; go.yaml.in/yaml v2.4.3, `resolve.go`; sigs.k8s.io/yaml v1.6.0.
"""

import re
from collections.abc import Collection

from ...core.model.place import KeyPath
from ...core.model.problem import did_you_mean

SECTIONS = frozenset({"version", "flags", "sharing", "resources", "imex"})
"""The sections that NVIDIA's plugin knows."""

_OURS = ("devices", "faults", "node", "telemetry", "fleet", "presetsDir")
_KEYS: dict[KeyPath, Collection[str]] = {
    (): SECTIONS,
    ("flags",): (
        *("migStrategy", "failOnInitError", "mpsRoot", "nvidiaDriverRoot", "nvidiaDevRoot", "gdrcopyEnabled"),
        *("gdsEnabled", "mofedEnabled", "useNodeFeatureAPI", "deviceDiscoveryStrategy", "plugin", "gfd"),
    ),
    ("flags", "plugin"): (
        *("passDeviceSpecs", "deviceListStrategy", "deviceIDStrategy", "cdiAnnotationPrefix", "nvidiaCTKPath"),
        *("containerDriverRoot", "sharedDevicesAllocationPolicy"),
    ),
    ("flags", "gfd"): ("oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"),
    ("sharing",): ("timeSlicing", "mps"),
    ("resources",): ("gpus", "mig"),
    ("imex",): ("channelIDs", "required"),
}
_SPELLED = {path: {key.lower(): key for key in keys} for path, keys in _KEYS.items()}

MIG_PARTED = frozenset({"version", "mig-configs"})
"""What a file of NVIDIA's mig-parted has, which reads it by the same package."""

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]{1,16})|0[bB]([01]{1,64})|0[oO]?([0-7]{1,22})|(0|[1-9][0-9]{0,19}))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_LONGEST = 64
_MOST = 1e21  # from here on JSON writes an exponent, which is no whole number to Go


def is_for_nvidia(keys: Collection[str]) -> bool:
    """Whether a file with these keys at its top is for NVIDIA's plugin: none is a section of vdev's, or nearly one."""
    known = SECTIONS & {spelled((), key) for key in keys}
    unknown = [key for key in keys if spelled((), key) not in SECTIONS]
    if not unknown:
        return True
    return bool(known - {"version"}) and not any(did_you_mean(key, _OURS) for key in unknown)


def spelled(path: KeyPath, key: str) -> str:
    """The key of the mapping at that path as NVIDIA's plugin spells it; a key that it does not know stays as it is."""
    return _SPELLED.get(path, {}).get(key.lower(), key)


def number_or_boolean(text: str) -> str | None:
    """The scalar as JSON has it, or None for a text and for what vdev reads alike."""
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
