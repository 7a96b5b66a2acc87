"""NVIDIA's labels, by the rules of GPU Feature Discovery (k8s-device-plugin 0.20.0, internal/lm).

The labels describe models and profiles, not resources: they are `nvidia.com/gpu.*` no matter how the devices are
advertised. Sharing is looked up by the name without sharing. If a node has several models, the last one's labels win.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..model.entry import MigStrategy
from ..model.geometry import Profile
from ..model.problem import Problem, warning
from ..model.spec import SharedItem, SharingKind, Spec
from .vendor_labels import Hardware, Machine, rule_for

_GPU = "nvidia.com/gpu"
_MIB = 2**20
_UNKNOWN_MACHINE = "unknown"
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9\-_. ]")
_MODES = {"0300": "graphics", "0302": "compute"}  # by PCI class: VGA controller, 3D controller
_COMPUTE = "0302"  # the class of data center GPUs
_MIG_ATTRIBUTES = (
    "multiprocessors",
    "slices.gi",
    "slices.ci",
    "engines.copy",
    "engines.decoder",
    "engines.encoder",
    "engines.jpeg",
    "engines.ofa",
)
_NO_ENCODER = {"engines.encoder": "0"}  # GPUs that can be partitioned had no encoder before profiles had this attribute
_CAPABILITY = re.compile(r"v?(\d{1,3})(?:\.(\d{1,3}))?", re.ASCII)
_FAMILIES = {  # by the first compute capability of each, as major and minor version
    (1, 0): "tesla",
    (2, 0): "fermi",
    (3, 0): "kepler",
    (5, 0): "maxwell",
    (6, 0): "pascal",
    (7, 0): "volta",
    (7, 5): "turing",
    (8, 0): "ampere",
    (8, 9): "ada-lovelace",
    (9, 0): "hopper",
    (10, 0): "blackwell",
    (12, 0): "blackwell",
    (13, 0): "rubin",
}


def nvidia_labels(spec: Spec, gpus: Sequence[Hardware], machine: Machine, problems: list[Problem]) -> dict[str, str]:
    """The labels of a node with these NVIDIA devices, some even if no device exists now. `problems` gets warnings."""
    values = {"nvidia.com/vgpu.present": "false"}
    has_timestamp = not (spec.flags.gfd and spec.flags.gfd.no_timestamp)
    if machine.started_at is not None and has_timestamp:
        values["nvidia.com/gfd.timestamp"] = str(machine.started_at)
    if not gpus:
        return values
    known = gpus[0].attributes
    classes = {gpu.pci("pciClass") if "pciClass" in gpu.attributes else _COMPUTE for gpu in gpus}
    is_mps = spec.sharing is not None and spec.sharing.kind is SharingKind.MPS
    values |= {
        "nvidia.com/gpu.machine": sanitised(known.get("machine", "") or machine.product.strip() or _UNKNOWN_MACHINE),
        "nvidia.com/mig.capable": str(any(gpu.entry.geometry is not None for gpu in gpus)).lower(),
        "nvidia.com/mps.capable": str(is_mps and all(gpu.parts is None for gpu in gpus)).lower(),
        "nvidia.com/gpu.mode": _MODES.get(classes.pop(), "unknown") if len(classes) == 1 else "unknown",
        **_versions(gpus[0], problems),
        **_clique(gpus),
        **_whole(spec, gpus, problems),
    }
    match spec.flags.mig_strategy:
        case MigStrategy.SINGLE:
            values |= {"nvidia.com/mig.strategy": "single", **_single(spec, gpus)}
        case MigStrategy.MIXED:
            values["nvidia.com/mig.strategy"] = "mixed"
            values |= _partitions(spec, gpus, lambda profile: f"nvidia.com/mig-{_plain(profile)}")
        case MigStrategy.NONE:
            pass
    return values


def sanitised(text: str) -> str:
    """The text without characters that labels cannot have, its words joined by dashes."""
    return "-".join(_NOT_ALLOWED.sub("", text).split())


def _versions(gpu: Hardware, problems: list[Problem]) -> dict[str, str]:
    """The labels of the versions of driver and CUDA, each number under an old and a new name."""
    values: dict[str, str] = {}
    for key, kind, names, example in (
        ("driverVersion", "driver", ("major", "minor", "revision"), "580.95.05"),
        ("cudaVersion", "runtime", ("major", "minor"), "13.0"),
    ):
        text = gpu.attributes.get(key, "")
        parts = text.split(".")
        # At least major and minor.
        if 2 <= len(parts) <= len(names) and all(part.isdecimal() for part in parts):
            for name, part in zip(names, (*parts, ""), strict=False):
                values[f"nvidia.com/cuda.{kind}.{name.replace('revision', 'rev')}"] = part
                values[f"nvidia.com/cuda.{kind}-version.{name}"] = part
            values[f"nvidia.com/cuda.{kind}-version.full"] = text
        elif text:
            message = f"the {key} {text!r} is not a version, so the node has no labels for it"
            hint = f'write one such as "{example}" under virtual.attributes'
            problems.append(warning(gpu.entry.where, message, hint))
    return values


def _clique(gpus: Iterable[Hardware]) -> dict[str, str]:
    """The NVLink domain, if all GPUs with one have the same."""
    domains = {
        f"{cluster}.{gpu.attributes.get('fabricCliqueId', '0')}"
        for gpu in gpus
        if (cluster := gpu.attributes.get("fabricClusterUuid"))
    }
    return {"nvidia.com/gpu.clique": domains.pop()} if len(domains) == 1 else {}


# --- whole devices ---------------------------------------------------------------------------------------------------


def model(gpu: Hardware) -> str:
    preset = gpu.entry.virtual.preset if gpu.entry.virtual else ""
    return gpu.attributes.get("model") or gpu.attributes.get("product") or preset


def _whole(spec: Spec, gpus: Sequence[Hardware], problems: list[Problem]) -> dict[str, str]:
    """The labels of the last model. Devices with MIG count only if there are no others, and then without sharing."""
    count = Counter(map(model, gpus))
    labeled = [gpu for gpu in gpus if gpu.parts is None] or gpus
    last = list(dict.fromkeys(map(model, labeled)))[-1]
    gpu = [each for each in labeled if model(each) == last][-1]
    values = _base(_GPU, count[last], (last,), spec, rule_for(spec, gpu) if gpu.parts is None else None)
    if gpu.parts is not None:
        values[f"{_GPU}.replicas"] = "0"
    if gpu.raw.memory >= _MIB:
        values[f"{_GPU}.memory"] = str(gpu.raw.memory // _MIB)
    values |= _architecture(gpu.attributes.get("computeCapability", ""))
    if len(count) > 1:
        message = f"GPUs of several models are on this node: {', '.join(count)}; the labels are those of {last!r}"
        problems.append(
            warning(gpus[-1].entry.where, message, "a node has one set of labels for all; give it one model")
        )
    return values


def _base(resource: str, count: int, parts: tuple[str, ...], spec: Spec, rule: SharedItem | None) -> dict[str, str]:
    renamed = rule is not None and bool(rule.rename or (spec.sharing and spec.sharing.rename_by_default))
    names = [*map(sanitised, filter(None, parts)), *(["SHARED"] if rule and not renamed else [])]
    return {
        f"{resource}.product": "-".join(names),
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(rule.replicas if rule else 1),
        f"{resource}.sharing-strategy": str(spec.sharing.kind) if rule and spec.sharing else "none",
    }


def _architecture(capability: str) -> dict[str, str]:
    hit = _CAPABILITY.fullmatch(capability)
    if hit is None:
        return {}
    major, minor = int(hit[1]), int(hit[2] or 0)
    families = [name for (of, least), name in _FAMILIES.items() if of == major and least <= minor]
    return {
        f"{_GPU}.family": families[-1] if families else "undefined",
        f"{_GPU}.compute.major": str(major),
        f"{_GPU}.compute.minor": str(minor),
    }


# --- partitions ------------------------------------------------------------------------------------------------------


def _single(spec: Spec, gpus: Sequence[Hardware]) -> Mapping[str, str]:
    """The labels of partitions in place of those of whole devices, or those of an invalid combination."""
    cut = [gpu for gpu in gpus if gpu.parts is not None]
    if not cut:
        return {}
    profiles = {profile.name for gpu in cut for profile in gpu.parts or ()}
    if len(cut) != len(gpus) or not all(gpu.parts for gpu in cut) or len(profiles) != 1:
        return {
            f"{_GPU}.product": "-".join([*filter(None, [sanitised(model(cut[0]))]), "MIG", "INVALID"]),
            f"{_GPU}.count": "0",
            f"{_GPU}.replicas": "0",
            f"{_GPU}.sharing-strategy": "",
            f"{_GPU}.memory": "0",
        }
    return _partitions(spec, cut, lambda _profile: _GPU)


def _partitions(spec: Spec, gpus: Iterable[Hardware], resource_of: Callable[[Profile], str]) -> dict[str, str]:
    parts = [(gpu, profile) for gpu in gpus for profile in gpu.parts or ()]
    count = Counter(profile.name for _, profile in parts)
    first = {profile.name: (gpu, profile) for gpu, profile in reversed(parts)}
    values: dict[str, str] = {}
    for name in count:
        gpu, profile = first[name]
        resource = resource_of(profile)
        values |= _base(resource, count[name], (model(gpu), "MIG", _plain(profile)), spec, rule_for(spec, gpu, profile))
        values[f"{resource}.memory"] = str(profile.memory // _MIB)
        attributes = {**_NO_ENCODER, **profile.attributes}
        values |= {f"{resource}.{key}": attributes[key] for key in _MIG_ATTRIBUTES if key in attributes}
    return values


def _plain(profile: Profile) -> str:
    """The profile's name in resources and labels."""
    return profile.name.replace("+", ".")
