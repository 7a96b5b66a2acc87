"""The part of `vdev demo` about claims: GPUs whose partitions the scheduler of a cluster gives out, one by one.

The embedded API server has the objects, the embedded kubelet plays scheduler and kubelet.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .story import Story, until

DRIVER = "gpu.nvidia.com"
_GPUS = """\
devices:
  - name: a100
    resource: nvidia.com/gpu
    advertise: [dra]
    virtual: {preset: a100-sxm4-40gb, count: 2}
    partitions: {"0": [7g.40gb], "1": [3g.20gb, 3g.20gb]}
"""
_CLASS = {"metadata": {"name": "partition"}, "spec": {}}
_REQUEST = {"name": "pair", "exactly": {"deviceClassName": "partition", "count": 2}}
_SPEC = {"devices": {"requests": [_REQUEST], "constraints": [{"matchAttribute": f"{DRIVER}/parentUUID"}]}}
_TEMPLATE = {"metadata": {"name": "pair"}, "spec": {"spec": _SPEC}}
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "claims"},
    "spec": {
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "pair"}],
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpus"}]}}],
    },
}


async def tell(story: Story, kubelet: Any, config: Path) -> None:
    """Publish GPUs, let a pod claim two partitions, wipe the slices under it, and let it end."""
    await _publish(story, kubelet, config)
    devices = await _claim(story, kubelet)
    await _wipe(story, kubelet, devices)
    await _end(story, kubelet)


async def _publish(story: Story, kubelet: Any, config: Path) -> None:
    story.step("The file gets GPUs for claims (Dynamic Resource Allocation): advertise: [dra], and how they are cut")
    config.write_text(config.read_text().replace("devices:\n", _GPUS, 1))
    took = await until(kubelet, lambda: _is_connected(kubelet) and bool(_devices(kubelet)), "the driver's slices")
    slices, names = _slices(kubelet), _devices(kubelet)
    story.say(
        f"driver {DRIVER}: {len(names)} partitions of 2 GPUs in {len(slices)} ResourceSlice{'s'[: len(slices) != 1]}"
    )
    for name in names:
        story.say(f"  {name}")
    story.check(f"they are published, and the kubelet knows the driver ({took:.0f} ms)", expected=3, actual=len(names))


async def _claim(story: Story, kubelet: Any) -> list[str]:
    story.step("A pod claims two partitions of one GPU, whichever it is")
    await kubelet.objects.create("DeviceClass", _CLASS)
    await kubelet.objects.create("ResourceClaimTemplate", _TEMPLATE)
    pod = await kubelet.run_pod(_POD)
    story.check(f"pod {pod.name} runs", expected=("Running", ""), actual=(pod.phase.value, pod.message))
    devices = [each.rpartition("/")[2] for each in pod.container().claims["gpus"]]
    story.say(f"claim {pod.claims['gpus']}: {', '.join(devices)}")
    story.say("and its container gets:")
    edits = pod.container().edits
    story.show(edits)
    gpus = {name.partition("-mig-")[0] for name in devices}
    story.check("two partitions of the same GPU", expected=(2, 1), actual=(len(devices), len(gpus)))
    visible = edits.envs.get("NVIDIA_VISIBLE_DEVICES", "")
    story.check("its container sees both", expected=2, actual=visible.count("MIG-"))
    await until(kubelet, lambda: _ready(kubelet) == devices, "the claim's status")
    story.check("the claim's own status says that they are ready", expected=devices, actual=_ready(kubelet))
    return devices


async def _wipe(story: Story, kubelet: Any, devices: list[str]) -> None:
    story.step("The kubelet restarts: it deletes all ResourceSlices of its node")
    before = {each["metadata"]["uid"] for each in _slices(kubelet)}
    names = _devices(kubelet)
    await kubelet.restart(wait=False)
    gone = await until(kubelet, lambda: before.isdisjoint(_uids(kubelet)), "the end of the slices")
    took = await until(kubelet, lambda: _devices(kubelet) == names, "all slices")
    story.check(
        f"they were gone ({gone:.0f} ms), and are back ({took:.0f} ms)", expected=names, actual=_devices(kubelet)
    )
    await until(kubelet, lambda: kubelet.ready and _is_connected(kubelet), "the kubelet's pods")
    pod = kubelet.pod("claims")
    had = [each.rpartition("/")[2] for each in pod.container().claims["gpus"]]
    story.check("the pod kept what it has", expected=("Running", devices), actual=(pod.phase.value, had))


async def _end(story: Story, kubelet: Any) -> None:
    story.step("The pod is deleted")
    await kubelet.delete_pod("claims")
    await until(kubelet, lambda: not kubelet.pods() or kubelet.pods()[0].name != "claims", "the end of the pod")
    story.check("its claim is unprepared and gone", expected=[], actual=_all(kubelet, "ResourceClaim"))


def _all(kubelet: Any, kind: str) -> list[Mapping[str, Any]]:
    store = kubelet.objects.store
    return list(store.all(kubelet.objects.kind(kind)))


def _slices(kubelet: Any) -> list[Mapping[str, Any]]:
    """Those of the driver, if they are a whole pool."""
    found = [each for each in _all(kubelet, "ResourceSlice") if each["spec"]["driver"] == DRIVER]
    return found if all(each["spec"]["pool"]["resourceSliceCount"] == len(found) for each in found) else []


def _uids(kubelet: Any) -> set[str]:
    return {each["metadata"]["uid"] for each in _all(kubelet, "ResourceSlice")}


def _devices(kubelet: Any) -> list[str]:
    return [device["name"] for each in _slices(kubelet) for device in each["spec"].get("devices") or ()]


def _is_connected(kubelet: Any) -> bool:
    return any(each.connected for each in kubelet.drivers().get(DRIVER, ()))


def _ready(kubelet: Any) -> list[str]:
    """The devices of which the claims' own status says that they are."""
    rows = [row for each in _all(kubelet, "ResourceClaim") for row in each.get("status", {}).get("devices") or ()]
    return [row["device"] for row in rows if any(_is_true(each) for each in row.get("conditions") or ())]


def _is_true(condition: Mapping[str, Any]) -> bool:
    return (condition["type"], condition["status"]) == ("Ready", "True")
