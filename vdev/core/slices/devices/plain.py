"""What is published of a device whose maker has no driver that we know: its own fields."""

from collections.abc import Iterator

from ...model.device import Device
from ...model.syntax import slice_syntax
from ...model.syntax.names import digest, domain_and_name
from ...spec import EntrySpec
from . import attributes
from .attributes import Attributes, of_text, string
from .published import DeviceCapacity

_MAX_NAME = 63
_DIGEST = 8


def name(device: Device) -> str:
    """The device's id as a DNS label; a fingerprint keeps ids apart that would be the same label."""
    return _label(device.id)


def counter_set(device: Device) -> str:
    """The name of the set of counters of a device that claims may cut."""
    return _label(f"{device.raw.id}-counter-set")


def _label(text: str) -> str:
    """A '.' becomes '-' like everything that no label has, but is too common in ids to need a fingerprint."""
    label = slice_syntax.dns_label(text)
    if label == text.replace(".", "-"):
        return label
    return f"{label[: _MAX_NAME - _DIGEST - 1].strip('-')}-{digest(text, _DIGEST)}".strip("-")


def attributes_of(entry: EntrySpec, device: Device) -> Attributes:
    """The device's attributes: what it is, and its own, by names that a ResourceSlice takes."""
    known = {slice_syntax.identifier(key): of_text(text) for key, text in device.attributes.items()}
    known.pop("", None)
    kind = domain_and_name(entry.resource)[1]
    if device.is_partition:
        own = {"type": f"{kind}-partition", "profile": device.profile, "parent": device.raw.id}
    else:
        own = {"type": kind}
    said = {
        **{key: string(text) for key, text in own.items()},
        "id": string(device.id),
        **dict(attributes.standard(device)),
    }
    return said | {key: value for key, value in known.items() if key not in said}


def bent_names(entry: EntrySpec, device: Device) -> Iterator[str]:
    """What to say of names of the device's own attributes that two share in a ResourceSlice, or that are too long."""
    first: dict[str, str] = {}
    for key in device.attributes:
        name = slice_syntax.identifier(key)
        if (other := first.setdefault(name, key)) != key:
            both = f"the attributes {other} and {key} of {entry.name}"
            yield f"{both} are both {name} in its ResourceSlices; the last one is published"
        elif len(key) > slice_syntax.MAX_IDENTIFIER:
            longest = f"where a name has at most {slice_syntax.MAX_IDENTIFIER} characters"
            yield f"the attribute {key} of {entry.name} is {name} in its ResourceSlices, {longest}"


def capacity_of(device: Device) -> dict[str, DeviceCapacity]:
    """The device's capacity."""
    return {"memory": DeviceCapacity(device.memory)} if device.memory else {}
