"""Builds configurations in code, without files."""

from vdev.model.entry import Entry
from vdev.model.geometry import PartitionChoice
from vdev.model.problem import Where
from vdev.model.spec import Mps, Resources, Sharing, Spec
from vdev.model.virtual import Preset, VirtualDevices


def made_virtual(count=1, *, links=None, geometry=None, id_style=None, nodes=(), **fields):
    """Return virtual devices with the values of a preset; `nodes` are the device nodes of the real device."""
    preset = Preset.model_construct(device_nodes=nodes, **({"id_style": id_style} if id_style else {}))
    scores = {"link_rows": links} if links else {}
    return VirtualDevices.model_construct(partitioning=geometry, **scores, **fields).resolved(preset, count=count)


def made_entry(name, resource, *, where="", partitions=None, choice=None, **fields):
    """Return an entry; `partitions` are profiles by device index."""
    wanted = choice or {str(index): profiles for index, profiles in (partitions or {}).items()}
    entry = Entry.model_construct(name=name, resource=resource, wanted_partitions=wanted, where=Where(where), **fields)
    return entry.model_copy(update={"partitions": partitions or {}})


def made_choice(label, default, layouts):
    """Return the choice of a layout by a label of the node."""
    return PartitionChoice.model_construct(label=label, default=default, layouts=layouts)


def made_spec(*entries, sharing=None, gpus=(), mig=(), **fields):
    """Return a configuration; `sharing` is the section of this name."""
    blocks = Sharing.model_construct(**{"mps" if isinstance(sharing, Mps) else "time_slicing": sharing})
    resources = Resources.model_construct(gpus=gpus, mig=mig)
    return Spec.model_construct(entries=entries, sharing_blocks=blocks, resources=resources, **fields)
