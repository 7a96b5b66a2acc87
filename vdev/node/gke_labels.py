"""GKE's labels of nodes with NVIDIA GPUs or TPUs (source: GKE's documentation of node labels)."""

from collections.abc import Iterable, Sequence

from ..model.geometry import Profile
from ..model.spec import SharingKind, Spec
from .label_values import Hardware
from .nvidia_labels import rule_for

DOMAIN = "google.com"  # of the resource of its chips
_LABEL = "cloud.google.com/gke"
_SHARING = {SharingKind.TIME_SLICING: "time-sharing", SharingKind.MPS: "mps"}


def gke_gpu_labels(spec: Spec, gpus: Sequence[Hardware]) -> dict[str, str]:
    """The labels for these NVIDIA devices, if all have the same attribute gkeAccelerator.

    No preset has it. An entry sets it to ask for these labels.
    """
    accelerator = _one(gpu.attributes.get("gkeAccelerator", "") for gpu in gpus)
    if not accelerator:
        return {}
    values = {f"{_LABEL}-accelerator": accelerator}
    size = _one(profile.name for gpu in gpus for profile in gpu.parts or ())
    if size and all(gpu.parts for gpu in gpus):
        values[f"{_LABEL}-gpu-partition-size"] = size
    rules = [rule_for(spec, gpu, profile) for gpu in gpus for profile in _offered(gpu)]
    rule = rules[0] if rules else None
    if rule and spec.sharing and all(each == rule for each in rules) and all(_offered(gpu) for gpu in gpus):
        values[f"{_LABEL}-gpu-sharing-strategy"] = _SHARING[spec.sharing.kind]
        values[f"{_LABEL}-max-shared-clients-per-gpu"] = str(rule.replicas)
    return values


def _offered(gpu: Hardware) -> Sequence[Profile | None]:
    """What pods can get: its partitions, or the GPU itself."""
    return (None,) if gpu.parts is None else gpu.parts


def gke_tpu_labels(chips: Sequence[Hardware]) -> dict[str, str]:
    keys = {"accelerator": f"{_LABEL}-tpu-accelerator", "topology": f"{_LABEL}-tpu-topology"}
    values = {label: _one(chip.attributes.get(key, "") for chip in chips) for key, label in keys.items()}
    return {label: value for label, value in values.items() if value}


def _one(texts: Iterable[str]) -> str:
    """The text, if all are the same; else the empty string."""
    every = set(texts)
    return every.pop() if len(every) == 1 else ""
