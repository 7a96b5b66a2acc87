"""AMD's labels, as its node labeller makes them (ROCm/k8s-device-plugin ed76466, cmd/k8s-node-labeller).

The labeller has a flag for each kind of label. This module sets all labels with known values. It sets no firmware
labels, and driver labels only if the devices have such an attribute. Partitions are counted as devices, as the driver
does; only the PCI id belongs to the whole GPU.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .label_values import Hardware

_PLAIN, _BETA = "amd.com/gpu", "beta.amd.com/gpu"
_MIB = 2**20
_SIMDS = 4  # of a compute unit, for every GPU that ROCm supports
_PRODUCT = str.maketrans({" ": "_", "(": None, ")": None})


@dataclass(frozen=True, slots=True)
class _Unit:
    """A GPU, or a partition of one."""

    memory: int
    attributes: Mapping[str, str]


def amd_labels(gpus: Sequence[Hardware]) -> dict[str, str]:
    if not gpus:
        return {}
    units = [unit for gpu in gpus for unit in _units(gpu)]
    values: dict[str, str] = {}
    for kind, texts in {
        "family": [unit.attributes.get("family", "") for unit in units],
        "device-id": [gpu.pci("pciDeviceId") for gpu in gpus],
        "product-name": [_product(unit) for unit in units],
        "vram": [_vram(unit) for unit in units],
        "simd-count": [_simds(unit) for unit in units],
        "cu-count": [unit.attributes.get("computeUnits", "") for unit in units],
    }.items():
        values |= _counted(kind, filter(None, texts))
    known = gpus[0].attributes
    for kind, key in (("driver-version", "driverVersion"), ("driver-src-version", "driverSrcVersion")):
        if key in known:
            values[f"{_PLAIN}.{kind}"] = known[key]
    return values | _partitioning(gpus)


def _units(gpu: Hardware) -> Iterable[_Unit]:
    if gpu.parts is None:
        return [_Unit(gpu.raw.memory, gpu.attributes)]
    return [_Unit(each.memory, {**gpu.attributes, **each.attributes}) for each in gpu.parts]


def _product(unit: _Unit) -> str:
    return (unit.attributes.get("product") or unit.attributes.get("model", "")).strip().translate(_PRODUCT)


def _vram(unit: _Unit) -> str:
    """Whole MiB, rounded to GiB; half a GiB is rounded up."""
    return f"{(unit.memory // _MIB + 512) // 1024}G" if unit.memory else ""


def _simds(unit: _Unit) -> str:
    units = unit.attributes.get("computeUnits", "")
    return str(int(units) * _SIMDS) if units.isdecimal() else ""


def _counted(kind: str, texts: Iterable[str]) -> dict[str, str]:
    """The old labels count each value; the new ones do so if there are several."""
    count = Counter(texts)
    values = {f"{_BETA}.{kind}.{text}": str(number) for text, number in count.items()}
    if len(count) == 1:
        (text,) = count
        return {**values, f"{_BETA}.{kind}": text, f"{_PLAIN}.{kind}": text}
    return {**values, **{f"{_PLAIN}.{kind}.{text}": str(number) for text, number in count.items()}}


def _partitioning(gpus: Sequence[Hardware]) -> dict[str, str]:
    """The supported modes, and the mode in force if it is the same for all GPUs."""
    geometry = gpus[0].entry.geometry
    modes = set(geometry.profiles) if geometry else set()
    values = {
        f"{_PLAIN}.compute-partitioning-supported": str(bool(modes)).lower(),
        f"{_PLAIN}.memory-partitioning-supported": str(any("_" in mode for mode in modes)).lower(),
    }
    now = {each.name for gpu in gpus for each in gpu.parts or ()}
    return {**values, f"{_PLAIN}.compute-memory-partition": now.pop()} if len(now) == 1 else values
