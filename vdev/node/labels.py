"""AMD's labels, as its node labeller makes them (ROCm/k8s-device-plugin ed76466, cmd/k8s-node-labeller).

Every kind of label is a switch there; here are all whose values are known: not the firmware's, nor the driver's unless
the devices have such an attribute. What is counted are partitions, since each is a device to the driver; only the PCI
id belongs to the GPU alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..model import names
from ..model.device import Device, RawDevice
from ..model.entry import EntrySpec
from ..model.problem import Problem, warning
from ..model.spec import Spec
from ..planning.allocation import placeholders
from ..planning.resources import Inventory
from . import nvidia_labels
from .label_values import NVIDIA, Hardware, Labels, Machine, hardware, maker
from .nvidia_labels import sanitised

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
    """Whole MiB, rounded to GiB; half of one counts."""
    return f"{(unit.memory // _MIB + 512) // 1024}G" if unit.memory else ""


def _simds(unit: _Unit) -> str:
    units = unit.attributes.get("computeUnits", "")
    return str(int(units) * _SIMDS) if units.isdecimal() else ""


def _counted(kind: str, texts: Iterable[str]) -> dict[str, str]:
    """The old labels count every value; the new ones do so where there are several."""
    count = Counter(texts)
    values = {f"{_BETA}.{kind}.{text}": str(number) for text, number in count.items()}
    if len(count) == 1:
        (text,) = count
        return {**values, f"{_BETA}.{kind}": text, f"{_PLAIN}.{kind}": text}
    return {**values, **{f"{_PLAIN}.{kind}.{text}": str(number) for text, number in count.items()}}


def _partitioning(gpus: Sequence[Hardware]) -> dict[str, str]:
    """Which modes there are; the mode in force only where all GPUs are in the same."""
    geometry = gpus[0].entry.geometry
    modes = set(geometry.profiles) if geometry else set()
    values = {
        f"{_PLAIN}.compute-partitioning-supported": str(bool(modes)).lower(),
        f"{_PLAIN}.memory-partitioning-supported": str(any("_" in mode for mode in modes)).lower(),
    }
    now = {each.name for gpu in gpus for each in gpu.parts or ()}
    return {**values, f"{_PLAIN}.compute-memory-partition": now.pop()} if len(now) == 1 else values


_KINDS = {f"{kind}.intel.com": kind for kind in ("gpu", "npu", "qat", "dsa", "iaa", "dlb", "sgx")}
DOMAINS = frozenset(_KINDS)


def intel_labels(devices: Sequence[Hardware]) -> dict[str, str]:
    values = {f"intel.feature.node.kubernetes.io/{_KINDS[each.maker]}": "true" for each in devices}
    gpus = [each for each in devices if each.maker == "gpu.intel.com"]
    if not gpus:
        return values
    values["gpu.intel.com/device.count"] = str(len(gpus))
    for (pci_class, device), count in Counter((gpu.pci("pciClass"), gpu.pci("pciDeviceId")) for gpu in gpus).items():
        if pci_class and device:
            values[f"gpu.intel.com/device-id.{pci_class}-{device}.present"] = "true"
            values[f"gpu.intel.com/device-id.{pci_class}-{device}.count"] = str(count)
    for key in ("product", "family"):
        told = [gpu.attributes[key] for gpu in gpus if gpu.attributes.get(key)]
        if told:
            values[f"gpu.intel.com/{key}"] = told[-1]
    return values


def entry_labels(entries: Iterable[EntrySpec], inventory: Inventory) -> tuple[dict[str, str], list[Problem]]:
    """The labels of the entries whose devices are there, and where they contradict themselves or each other."""
    wanted = [entry for entry in entries if entry.labels]
    if not wanted:
        return {}, []
    devices = _devices(wanted, inventory)
    given: dict[str, tuple[EntrySpec, str]] = {}
    problems: list[Problem] = []
    for entry in wanted:
        for key, value in _of_entry(entry, devices[entry.name], problems).items():
            first, used = given.setdefault(key, (entry, value))
            if used != value:
                message = (
                    f"the entries {first.name!r} and {entry.name!r} want different values for the label {key}: "
                    f"{used!r}, which is used, and {value!r}"
                )
                problems.append(warning(_where(entry, key), message, "let them agree, or give one another label"))
    return {key: value for key, (_, value) in given.items()}, problems


def _devices(entries: Sequence[EntrySpec], inventory: Inventory) -> dict[str, list[tuple[str, Device]]]:
    """Each entry's devices in order, with the resource that each is listed under, or would be."""
    would_be = {entry.name: entry.resource for entry in entries if not entry.listed}
    found: dict[str, dict[str, tuple[str, Device]]] = {entry.name: {} for entry in entries}
    for name, resource in inventory.each_once.items():
        for slot in resource.slots:
            entry = slot.device.raw.entry
            if entry in found:
                found[entry].setdefault(slot.device.id, (would_be.get(entry, name), slot.device))
    return {entry: sorted(each.values(), key=lambda pair: pair[1].sort_key) for entry, each in found.items()}


def _of_entry(entry: EntrySpec, devices: Sequence[tuple[str, Device]], problems: list[Problem]) -> dict[str, str]:
    if not devices:
        return {}
    constant = all(template.is_constant for template in entry.labels.values())
    shown = [placeholders(name, device) for name, device in (devices[:1] if constant else devices)]
    values: dict[str, str] = {}
    for key, template in entry.labels.items():
        told = dict.fromkeys(template.render(each) for each in shown)
        used, *others = told
        if others:
            message = (
                f"the devices of {entry.name!r} want different values for the label {key}: {used!r}, which is used, "
                f"and {_listed(others)}"
            )
            hint = "a node has one value: use placeholders that are the same for all of them"
            problems.append(warning(_where(entry, key), message, hint))
        values[key] = used if not names.value_problem(used) else sanitised(used)
    return values


_SHOWN = 3


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(map(repr, texts[:_SHOWN])) + more


def _where(entry: EntrySpec, key: str) -> str:
    return f"{entry.where}.labels.{key}"


def node_labels(
    spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]], inventory: Inventory, machine: Machine
) -> Labels:
    """The labels of the node. `found` are the raw devices by entry, `inventory` what they are listed as."""
    devices = hardware(spec, node, found, inventory)
    entries = spec.on_node(node)
    problems: list[Problem] = []
    values: dict[str, str] = {}
    if any(maker(entry) == NVIDIA for entry in entries):
        gpus = _made_by(devices, NVIDIA)
        told, doubts = nvidia_labels.nvidia_labels(spec, gpus, machine)
        problems += doubts
        values |= told | nvidia_labels.gpu_labels(spec, gpus)
    values |= amd_labels(_made_by(devices, "amd.com"))
    values |= intel_labels(_made_by(devices, *DOMAINS))
    values |= nvidia_labels.tpu_labels(_made_by(devices, nvidia_labels.DOMAIN))
    own, doubts = entry_labels(entries, inventory)
    problems += doubts
    places = {key: entry.where for entry in reversed(entries) for key in entry.labels}
    fine = {}
    for key, value in sorted({**values, **own}.items()):
        if wrong := names.key_problem(key) or names.value_problem(value):
            hint = "give the node this label under the entry's labels, or change the attribute that it is made of"
            problems.append(warning(places.get(key, ""), f"the label {key} is left out: {wrong}", hint))
        else:
            fine[key] = value
    return Labels(MappingProxyType(fine), tuple(dict.fromkeys(problems)))


def _made_by(devices: Sequence[Hardware], *domains: str) -> list[Hardware]:
    return [each for each in devices if each.maker in domains]
