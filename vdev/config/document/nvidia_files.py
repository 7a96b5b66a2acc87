"""Which files are those of NVIDIA's own plugin, and how it spells the keys that it takes in any case.

Such a file is read as that plugin reads it: what it ignores is a warning, not an error. Go's JSON takes keys in any
case; in the blocks of `sharing` and the items of `resources` NVIDIA's own code looks them up, as they are written.
Facts: NVIDIA/k8s-device-plugin v0.20.0, `api/config/v1`.
"""

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
