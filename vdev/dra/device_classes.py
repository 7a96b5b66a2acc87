"""The DeviceClasses for the drivers in a configuration. Claims request devices by the name of a class.

The classes of NVIDIA's and AMD's drivers have the vendors' names. Each other resource has a class for its devices, and
one for their partitions. DeviceClasses belong to the cluster and not to a node.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..model import names
from ..model.dra import DraPartitions
from ..model.entry import Entry
from ..model.names import domain_and_name
from ..model.problem import Problem, warning
from ..model.spec import Spec
from .amd_devices import is_amd
from .slices import API_VERSION, Document

_NVIDIA = "gpu."  # the prefix of the vendor in the name of a GPU driver


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class for a driver's devices, or for those of a `type`. `resource` is its extended resource, or empty."""

    name: str
    driver: str
    type: str = ""
    resource: str = ""

    @property
    def expression(self) -> str:
        """The selector of the class, in CEL."""
        own = f"device.driver == '{self.driver}'"
        return f"{own} && device.attributes['{self.driver}'].type == '{self.type}'" if self.type else own

    @property
    def document(self) -> Document:
        spec: Document = {"selectors": [{"cel": {"expression": self.expression}}]}
        if self.resource:
            spec["extendedResourceName"] = self.resource
        return {"apiVersion": API_VERSION, "kind": "DeviceClass", "metadata": {"name": self.name}, "spec": spec}


def device_classes(spec: Spec, *, extended: bool = False) -> tuple[tuple[DeviceClass, ...], tuple[Problem, ...]]:
    """Return the classes for all entries that are advertised by `dra`, and warnings about them.

    With `extended`, classes of whole devices map to the extended resources of their entries, even if not configured.
    """
    found: dict[str, DeviceClass] = {}
    problems: list[Problem] = []
    for entry in spec.entries:
        for each in _of_entry(entry, extended=extended):
            first = found.setdefault(each.name, each)
            if first != each:
                used, lost = (one.resource or "no extended resource" for one in (first, each))
                message = f"the DeviceClass {each.name} of several entries stands for {used}, and not for {lost}"
                hint = "let these entries agree, or give one another dra.driver"
                problems.append(warning(entry.where, message, hint))
    return tuple(found.values()), tuple(dict.fromkeys(problems))


def _of_entry(entry: Entry, *, extended: bool) -> Iterator[DeviceClass]:
    if entry.dra is None:
        return
    driver = entry.dra.driver
    resource = entry.resource if extended or entry.dra.extended_resource else ""
    if entry.is_nvidia:
        yield DeviceClass(driver, driver, "gpu", resource)
        yield DeviceClass(f"mig.{driver.removeprefix(_NVIDIA)}", driver, "mig")
        yield DeviceClass(f"vfio.{driver}", driver, "vfio")
    elif is_amd(entry):
        yield DeviceClass(driver, driver, resource=resource)
    else:
        kind = domain_and_name(entry.resource)[1]
        name = names.dns_label(kind)
        yield DeviceClass(f"{name}.{driver}", driver, kind, resource)
        if entry.dra.partitions is DraPartitions.DYNAMIC or entry.possible_profiles:
            yield DeviceClass(f"{name}-partition.{driver}", driver, f"{kind}-partition")
