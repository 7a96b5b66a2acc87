"""Builders for the planner's input; keyword arguments override defaults."""

from dataclasses import replace

import pytest

from tests.kit.geometry import made_geometry, made_profile
from tests.kit.specs import made_entry, made_spec, made_virtual
from vdev.model.device import Health, IdStyle, RawDevice
from vdev.model.dra import ClaimApi
from vdev.model.problem import Where
from vdev.model.spec import DEFAULT_FLAGS, Mps, PluginFlags, SharedItem, SharingKind, TimeSlicing
from vdev.planning.inventory import arrange

GI = 2**30

A100 = made_geometry(
    slices=8,
    compute=7,
    profiles=(
        made_profile(name="1g.5gb", slices=1, memory=4864 * 2**20, placements=(0, 1, 2, 3, 4, 5, 6), compute=1),
        made_profile(
            name="1g.5gb+me", slices=1, memory=4864 * 2**20, placements=(0, 1, 2, 3, 4, 5, 6), compute=1, exclusive="me"
        ),
        made_profile(name="2g.10gb", slices=2, memory=9856 * 2**20, placements=(0, 2, 4), compute=2),
        made_profile(name="3g.20gb", slices=4, memory=19968 * 2**20, placements=(0, 4), compute=3),
        made_profile(name="7g.40gb", slices=8, memory=40192 * 2**20, placements=(0,), compute=7),
    ),
)


class Build:
    """Builders: entries, raw devices, whole inventories."""

    geometry = A100

    def entry(
        self, name="gpu", resource="nvidia.com/gpu", *, count=2, nvidia=True, geometry=A100, listed=True, **changes
    ):
        """An entry of virtual devices."""
        model = {"model": "NVIDIA A100-SXM4-40GB", "product": "a100"} if nvidia else {}
        style = IdStyle.NVIDIA if nvidia else IdStyle.NAME
        source = made_virtual(count, memory=40 * GI, attributes=model, id_style=style, geometry=geometry)
        defaults = {
            "where": f"t.yaml:1:1: devices.{name}",
            "visible_devices_env": "NVIDIA_VISIBLE_DEVICES" if nvidia else "",
            "advertise": [ClaimApi.DEVICE_PLUGIN] if listed else [ClaimApi.DRA],
        }
        return made_entry(name, resource, virtual=source, **{**defaults, **changes})

    def raws(self, entry, count=None, **changes):
        """The raw devices of a virtual entry."""
        prefix = "GPU-" if entry.is_nvidia else f"{entry.name}-"
        return tuple(
            RawDevice(
                id=f"{prefix}{entry.name[0] * 4}{index}" if entry.is_nvidia else f"{prefix}{index}",
                entry=entry.name,
                index=index,
                memory=40 * GI,
                **changes,
            )
            for index in range(entry.virtual.count if count is None else count)
        )

    def inventory(self, *entries, found=None, sharing=None, gpus=(), mig=(), **flags):
        """The inventory of a node with these entries."""
        plugin = {key: flags.pop(key) for key in PluginFlags.model_fields.keys() & flags.keys()}
        chosen = DEFAULT_FLAGS.model_copy(update=flags).with_plugin(**plugin)
        whole = made_spec(*entries, flags=chosen, sharing=sharing, gpus=gpus, mig=mig)
        return arrange(whole, "node-a", found or {entry.name: self.raws(entry) for entry in entries})

    def sharing(self, *resources, kind=SharingKind.TIME_SLICING, **flags):
        items = [
            SharedItem.model_construct(**{"devices": None, **each, "where": Where(each.get("where", ""))})
            for each in resources
        ]
        block = Mps if kind is SharingKind.MPS else TimeSlicing
        return block.model_construct(resources=tuple(items), **{"fail_requests_greater_than_one": False, **flags})

    def ids(self, stock, name):
        """The ids of a resource."""
        return [slot.id for slot in stock.resources[name].slots]

    def broken(self, raw, reason="dead"):
        """A raw device that discovery reports as unhealthy."""
        return replace(raw, health=Health(healthy=False, reason=reason))


@pytest.fixture
def build():
    return Build()
