"""All labels of a node: those of the makers, then those of the entries, which win; what Kubernetes refuses is left out.

A node has no labels of a maker whose devices no entry of it has. Entries are those of the node, devices those that are
there: health does not matter, and a labeller would not know it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ..inventory.resources import Inventory
from ..model.device import RawDevice
from ..model.problem import Problem, warning
from ..model.syntax import label_syntax
from ..spec import Spec
from . import amd, entry_labels, gke, intel, nvidia
from .hardware import NVIDIA, Hardware, hardware, maker
from .values import Labels, Machine


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
        told, doubts = nvidia.labels(spec, gpus, machine)
        problems += doubts
        values |= told | gke.gpu_labels(spec, gpus)
    values |= amd.labels(_made_by(devices, "amd.com"))
    values |= intel.labels(_made_by(devices, *intel.DOMAINS))
    values |= gke.tpu_labels(_made_by(devices, gke.DOMAIN))
    own, doubts = entry_labels.labels(entries, inventory)
    problems += doubts
    places = {key: entry.where for entry in reversed(entries) for key, _ in entry.labels}
    fine = {}
    for key, value in sorted({**values, **own}.items()):
        if wrong := label_syntax.key_problem(key) or label_syntax.value_problem(value):
            hint = "give the node this label under the entry's labels, or change the attribute that it is made of"
            problems.append(warning(places.get(key, ""), f"the label {key} is left out: {wrong}", hint))
        else:
            fine[key] = value
    return Labels(MappingProxyType(fine), tuple(dict.fromkeys(problems)))


def _made_by(devices: Sequence[Hardware], *domains: str) -> list[Hardware]:
    return [each for each in devices if each.maker in domains]
