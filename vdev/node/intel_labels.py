"""Intel's labels, by its rules for Node Feature Discovery and its GPU plugin's labeller."""

from collections import Counter
from collections.abc import Sequence

from .label_values import Hardware

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
        texts = [gpu.attributes[key] for gpu in gpus if gpu.attributes.get(key)]
        if texts:
            values[f"gpu.intel.com/{key}"] = texts[-1]
    return values
