"""run-ai/fake-gpu-operator: its topology of node pools, in a ConfigMap or in Helm values, in the old form and the new.

Source: 3a3f644 of 2026-07-01, `internal/common/topology`. Each pool becomes a file, because a label of the node chooses
the pool.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import config
from .draft import Draft, keys
from .sources import ImportOptions, ImportSource, listed, mapping, number

TITLE = "fake-gpu-operator"
_GPU = "nvidia.com/gpu"
_POOL_LABEL = "run.ai/simulated-gpu-node-pool"
_PROFILES = {
    "a100": "a100-sxm4-40gb",
    "h100": "h100-sxm5-80gb",
    "b200": "b200",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
    "t4": "t4",
}
_PROFILE_COUNT = 8  # devices of a built-in profile
_ANY_GPU = "nvidia-gpu"  # the preset of a product without its own
_OVERRIDES = keys("device_count", device_defaults=keys("name", memory=keys("total_bytes")), devices=keys("index"))
_POOL = keys(
    *("resources", "gpuProduct", "gpuCount", "gpuMemory", "otherDevices"),
    gpu=keys("backend", "profile", overrides=_OVERRIDES),
)
_TOPOLOGY = keys("nodePools", "nodePoolLabelKey", "migStrategy")


def recognizes(content: Any) -> bool:
    """Whether it has node pools."""
    return bool(_topology(content))


def _topology(content: Any) -> dict[str, Any]:
    given = mapping(content)
    for each in (mapping(given.get("cluster")), mapping(given.get("topology")), given):
        if isinstance(each.get("nodePools"), dict):
            return each
    return {}


def drafts(found: Sequence[ImportSource], options: ImportOptions) -> list[Draft]:
    """One file for each pool."""
    made = []
    for source in found:
        topology = _topology(source.content)
        for name, pool in mapping(topology.get("nodePools")).items():
            draft = _pool(str(name), mapping(pool), topology, options)
            draft.name_unread(topology, _TOPOLOGY)
            if topology is not source.content:  # it is part of Helm values
                draft.name_unread(source.content, keys("topology", "cluster"))
            made.append(draft)
    return made


def _pool(name: str, pool: dict[str, Any], topology: Mapping[str, Any], options: ImportOptions) -> Draft:
    label = topology.get("nodePoolLabelKey") or _POOL_LABEL
    draft = Draft(f"Made by vdev import of the node pool {name} of fake-gpu-operator.", name)
    draft.remarks.append(
        f"Its nodes have the label {label}={name}; give them vdev.dev/config={name} as well, or this file alone."
    )
    draft.remarks.append(
        "With node: {labels: true} vdev writes nvidia.com/gpu.product, gpu.memory, gpu.count and the rest; with "
        'telemetry: {address: ":9400"} there are DCGM\'s metrics, and nvidia-smi in containers.'
    )
    new = "gpu" in pool
    gpu = mapping(pool.get("gpu"))
    overrides = mapping(gpu.get("overrides"))
    defaults = mapping(overrides.get("device_defaults"))
    if new:
        product, profile = defaults.get("name"), str(gpu.get("profile") or "")
        memory = _mebibytes(mapping(defaults.get("memory")).get("total_bytes"))
        count = number(overrides.get("device_count")) or len(listed(overrides.get("devices")))
        count = count or (_PROFILE_COUNT if profile else 0)
    else:
        product, profile = pool.get("gpuProduct"), ""
        memory, count = number(pool.get("gpuMemory")) or 0, number(pool.get("gpuCount")) or 0
    if topology.get("migStrategy") in ("single", "mixed"):
        draft.flags["migStrategy"] = str(topology["migStrategy"])
    _gpus(draft, options, product=product, memory=memory, count=count, profile=profile)
    draft.name_unread(pool, _POOL)
    if gpu.get("backend") == "mock":
        draft.note("gpu.backend", "mock runs NVIDIA's plugin on a mocked driver; here, vdev advertises the devices")
    _others(draft, pool)
    return draft


def _gpus(draft: Draft, options: ImportOptions, *, product: Any, memory: int, count: int, profile: str) -> None:
    if profile and profile not in _PROFILES:
        draft.omit("gpu.profile", f"{profile!r} is not a built-in profile; write the model and the memory by hand")
    if not count:
        draft.note("", "the pool has no GPUs")
        return
    model = str(product) if isinstance(product, str) else ""
    own = options.preset or config.preset_of(model)
    preset = own or _PROFILES.get(profile, _ANY_GPU)
    virtual: dict[str, Any] = {"preset": preset, "count": count}
    if memory and not _same_memory(preset, memory):
        virtual["memory"] = f"{memory}Mi"
    if model and not own:
        virtual["attributes"] = {"product": model, "model": model}
    block = draft.entry({"name": "gpu", "resource": _GPU, "virtual": virtual})
    if preset == _ANY_GPU and model:
        block.comments.append(f"There is no preset for {model}, so it cannot be partitioned.")
    elif preset == _ANY_GPU:
        draft.note("", "the model of the GPUs is unknown; write it into virtual.attributes", block)


def _same_memory(preset: str, mebibytes: int) -> bool:
    """Whether it is the memory of the preset, except for what a driver reserves."""
    return abs(config.preset(preset).memory / 2**20 - mebibytes) <= 0.03 * mebibytes


def _mebibytes(value: Any) -> int:
    text = str(value)
    return int(text) // 2**20 if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _others(draft: Draft, pool: dict[str, Any]) -> None:
    for where, name, count in _named(pool):
        if not count:
            draft.omit(where, f"{name} has no number of devices")
        elif name != _GPU:
            draft.entry(
                {"name": draft.entry_name(name.rpartition("/")[2]), "resource": name, "virtual": {"count": count}}
            )


def _named(pool: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    for place, each in enumerate(listed(pool.get("otherDevices"))):
        given = mapping(each)
        yield f"otherDevices[{place}]", str(given.get("name") or ""), number(given.get("count")) or 0
    for place, each in enumerate(listed(pool.get("resources"))):
        for name, count in mapping(each).items():
            yield f"resources[{place}]", name, number(count) or 0
