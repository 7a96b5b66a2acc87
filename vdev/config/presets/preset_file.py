"""The form of a preset's file: its keys, and what is said about one that is wrong, with its place.

Where the files are, and what `base` means, is known to `presets`.
"""

from typing import Annotated

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ...core.model.device import IdStyle
from ...core.model.problem import did_you_mean
from ...errors import ConfigError
from ..document.loader import Document
from ..document.position import Finding, Path, finding
from ..schema.partitioning import PartitioningModel, ProfileModel
from ..schema.scalars import (
    PROBLEM,
    AsWritten,
    EnvName,
    Memory,
    PathTemplate,
    Permissions,
    ResourceName,
    Section,
    Text,
    Whole,
    Word,
    between,
    choice,
    described,
)
from ..schema.sources import Count

Index = Annotated[Whole, between(0)]


class NodeModel(Section):
    """A device node that the real device has."""

    path: PathTemplate
    """Path on the host; {index} is the device's number."""
    permissions: Permissions = "rw"
    """One or more of r (read), w (write) and m (mknod)."""
    first_index: Index = 0
    """What {index} is for the first device."""


class PresetModel(Section):
    """A preset's file."""

    base: Word | None = None
    """Another preset, which says what this one does not."""
    description: Word | None = None
    """What it is, in a few words."""
    resource: ResourceName | None = None
    """The resource under which its vendor's plugin advertises it."""
    id_style: Annotated[IdStyle, choice(IdStyle)] | None = None
    """How ids look: `<name>-<index>`, or NVIDIA's UUIDs."""
    visible_devices_env: EnvName | None = None
    """The variable that tells the vendor's runtime which devices a container gets."""
    count: Count | None = None
    """How many devices a node has."""
    memory: Memory | None = None
    """Memory of each device, as a Kubernetes quantity such as 16Gi."""
    numa: list[Index] | None = None
    """NUMA nodes: one for all devices, or one per device."""
    attributes: dict[str, AsWritten] = {}
    """Facts about each device, for templates; beside those of the base."""
    links: list[list[Index]] | None = None
    """Groups of devices, each linked to each; or a score for every pair, as `count` lists of `count` numbers."""
    link_score: Annotated[Whole, between(1)] | None = None
    """What a link of a group is worth, 100 for one NVLink."""
    device_nodes: list[NodeModel] | None = None
    """Device nodes that the real device has."""
    partition_nodes: list[NodeModel] | None = None
    """Device nodes that a partition of it has. Default: those of the device."""
    partitioning: PartitioningModel | None = None
    """What a device can be cut into."""
    sources: dict[str, Text] = {}
    """Where the figures come from, by key."""
    unverified: list[Text] = []
    """Keys whose figures nobody has confirmed."""


def validated(document: Document) -> PresetModel:
    """The model of a preset's file. Raises ConfigError with every problem of it."""
    problems = list(document.problems)
    model = None
    try:
        model = PresetModel.model_validate(document.root)
    except ValidationError as error:
        problems += [_finding(detail, document) for detail in error.errors(include_url=False)]
    if model is None or problems:
        raise ConfigError(tuple(problems))
    return model


def _finding(detail: ErrorDetails, document: Document) -> Finding:
    """Pydantic's error at its place in the file, in our words."""
    path, _ = document.located(detail["loc"])
    known, kind = document.known(path), detail["type"]
    if kind == "extra_forbidden":
        allowed = _keys(path[:-1])
        near = did_you_mean(str(path[-1]), allowed)
        hint = f"{near} " * bool(near) + "allowed: " + ", ".join(allowed)
        return finding(document.key_place(path), path, f"unknown key {str(path[-1])!r}", hint=hint)
    if kind == "missing":
        return problem_at(document, known, f"{str(path[-1])!r} is missing")
    if kind == PROBLEM:
        return problem_at(document, known, detail["ctx"]["message"], detail["ctx"]["hint"])
    expected = {"list_type": "a list", "dict_type": "a mapping", "model_type": "a mapping"}.get(kind, detail["msg"])
    return problem_at(document, known, f"expected {expected}, got {described(detail['input'])}")


def _keys(path: Path) -> list[str]:
    """The keys that a preset may have at that path."""
    model: type[BaseModel]
    match path:
        case ():
            model = PresetModel
        case ("partitioning",):
            model = PartitioningModel
        case ("partitioning", "profiles", _):
            model = ProfileModel
        case _:
            model = NodeModel
    return [field.alias or name for name, field in model.model_fields.items()]


def problem_at(document: Document, path: Path, message: str, hint: str = "") -> Finding:
    """A finding at the value of `path`, or the nearest around it."""
    return finding(document.value_place(path), path, message, hint=hint)
