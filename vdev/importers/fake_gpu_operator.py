"""run-ai/fake-gpu-operator: its topology of node pools, in a ConfigMap or in Helm values, in the old form and the new.

Source: 3a3f644 of 2026-07-01, `internal/common/topology`. Each pool becomes a file, because a label of the node chooses
the pool.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .. import config
from .draft import Draft, Item, mapping
from .sources import Form, ImportOptions, ImportSource

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
_ANY_GPU = "nvidia-gpu"  # the preset of products without their own preset


def _place(content: Any) -> str | None:
    """Return the key of the topology in Helm values, "" if the content is the topology, or None if there is none."""
    given = mapping(content)
    inner = (key for key in ("cluster", "topology", "") if isinstance(_at(given, key).get("nodePools"), dict))
    return next(inner, None)


def _at(given: dict[str, Any], key: str) -> dict[str, Any]:
    return mapping(given.get(key)) if key else given


def _files(found: Sequence[ImportSource]) -> Iterator[tuple[str, Any]]:
    """Yield a file for each pool, with the pool and all that surrounds it."""
    for source in found:
        for name, pool in _at(source.content, _place(source.content) or "")["nodePools"].items():
            yield str(name), (pool, source.content)


def _fill(draft: Draft, content: tuple[Any, Any], options: ImportOptions) -> None:
    pool, values = (Item(draft, each) for each in content)
    key = _place(values.given)
    topology = values.item(key) if key else values
    topology.ignore("nodePools")
    label, strategy = topology.text("nodePoolLabelKey") or _POOL_LABEL, topology.text("migStrategy")
    draft.remarks += [
        f"Its nodes have the label {label}={draft.name}; give them vdev.dev/config={draft.name} as well, or this file "
        "alone.",
        "With node: {labels: true} vdev writes nvidia.com/gpu.product, gpu.memory, gpu.count and the rest; with "
        'telemetry: {address: ":9400"} there are DCGM\'s metrics, and nvidia-smi in containers.',
    ]
    if strategy in ("single", "mixed"):
        draft.sections["flags"] = {"migStrategy": strategy}
    if "gpu" in pool.given:
        _gpus_by_profile(draft, pool.item("gpu"), options)
    else:
        memory, count = pool.number("gpuMemory"), pool.number("gpuCount")
        _gpus(draft, options, product=pool.text("gpuProduct"), memory=memory, count=count)
    others = [(each.where, each.text("name"), each.number("count")) for each in pool.items("otherDevices")]
    others += [(each.where, name, each.number(name)) for each in pool.items("resources") for name in each.given]
    for where, name, count in others:
        if not count:
            draft.omit(where, f"{name} has no number of devices")
        elif name != _GPU:
            name_here = draft.entry_name(name.rpartition("/")[2])
            draft.entry({"name": name_here, "resource": name, "virtual": {"count": count}})


FORM = Form(title="fake-gpu-operator", recognizes=lambda content: _place(content) is not None, files=_files, fill=_fill)


def _gpus_by_profile(draft: Draft, gpu: Item, options: ImportOptions) -> None:
    """Add the GPUs of a pool of the new form."""
    profile, overrides = gpu.text("profile"), gpu.item("overrides")
    if profile and profile not in _PROFILES:
        draft.omit(
            gpu.at("profile"), f"{profile!r} is not a built-in profile; add the model and the memory to the file"
        )
    gpu.ignore("backend")
    defaults, devices = overrides.item("device_defaults"), overrides.items("devices")
    for device in devices:
        device.ignore("index")
    size = str(defaults.item("memory").value("total_bytes"))
    memory = int(size) // 2**20 if size.isascii() and size.isdecimal() and len(size) < 20 else 0
    count = overrides.number("device_count") or len(devices) or (_PROFILE_COUNT if profile else 0)
    preset = _PROFILES.get(profile, _ANY_GPU)
    _gpus(draft, options, product=defaults.text("name"), memory=memory, count=count, preset=preset)


def _gpus(
    draft: Draft, options: ImportOptions, *, product: str, memory: int, count: int, preset: str = _ANY_GPU
) -> None:
    """Add GPUs with `memory` in MiB. `preset` is for products without their own preset."""
    if not count:
        draft.note("", "the pool has no GPUs")
        return
    own = options.preset or config.preset_of(product)
    preset = own or preset
    virtual: dict[str, Any] = {"preset": preset, "count": count}
    # A driver reserves some of a preset's memory.
    if memory and abs(config.load_preset(preset).memory / 2**20 - memory) > 0.03 * memory:
        virtual["memory"] = f"{memory}Mi"
    if product and not own:
        virtual["attributes"] = {"product": product, "model": product}
    entry = draft.entry({"name": "gpu", "resource": _GPU, "virtual": virtual})
    if preset == _ANY_GPU and product:
        entry.comments.append(f"There is no preset for {product}, so it cannot be partitioned.")
    elif preset == _ANY_GPU:
        draft.note("", "the model of the GPUs is unknown; write it into virtual.attributes")
