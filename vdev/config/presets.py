"""Preset files: their form, and the files by name, those of the user's directories first, then ours.

A file is read once and its text remembered, so that all entries of one reading see the same, and so that it can be read
again when the directories are not there.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Self

from pydantic import PrivateAttr

from ..errors import ConfigError
from ..model.device import IdStyle
from ..model.problem import Place, did_you_mean, listed
from ..model.scalars import (
    AsWritten,
    Count,
    EnvName,
    Index,
    Memory,
    ResourceName,
    Section,
    Text,
    Whole,
    Word,
    between,
    choice,
)
from ..model.sources import DriverNode
from ..model.telemetry import PhysicsModel
from .loader import Text as FileText
from .loader import decoded, read_text
from .messages import ProblemReport, checked
from .parser import refusal
from .partitions_block import Partitioning
from .validation import FAST_LINK, Links, device_links, numa_nodes

_SUFFIXES = (".yaml", ".yml")
_NONE: Mapping[str, FileText] = {}


class PresetTexts:
    """The presets that one reading of the configuration can name. `known` are texts that stand for `dirs`."""

    def __init__(self, dirs: Sequence[Path] = (), *, known: Mapping[str, FileText] = _NONE) -> None:
        self.own = dict(known)  # those of the user's that were asked for, by name
        self._dirs = tuple(dirs)

    @property
    def only_ours(self) -> bool:
        """Whether the user has no presets."""
        return not self._dirs and not self.own

    def names(self) -> tuple[str, ...]:
        """All presets that can be named, sorted. Raises ConfigError for a directory that cannot be read."""
        found = (name for directory in (*self._dirs, _ours()) for name in _files(directory))
        return tuple(sorted({*self.own, *found}))

    def find(self, name: str) -> FileText | None:
        """The text of the preset, or None where there is none of that name. Raises ConfigError."""
        if name in self.own:
            return self.own[name]
        for directory in self._dirs:
            if file := _files(directory).get(name):
                self.own[name] = _read_text(file)
                return self.own[name]
        file = _files(_ours()).get(name)
        return _read_text(file) if file else None


def _ours() -> Traversable:
    return resources.files("vdev").joinpath("presets")


def _files(directory: Traversable) -> dict[str, Traversable]:
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name, reverse=True)  # .yaml wins over .yml
    except OSError as error:
        message = f"the presets directory cannot be read: {error.strerror}"
        raise refusal(Place(str(directory)), message) from error
    return {entry.name.rpartition(".")[0]: entry for entry in entries if entry.name.endswith(_SUFFIXES)}


def _read_text(file: Traversable) -> FileText:
    place = Place(str(file))
    try:
        if not file.is_file():  # a pipe would keep its reader waiting
            raise refusal(place, "is not a plain file")
        data = file.read_bytes()
    except OSError as error:
        raise refusal(place, f"cannot be read: {error.strerror}") from error
    return FileText(str(file), decoded(data, str(file)))


_DRIVERS: Mapping[IdStyle, Mapping[str, str]] = {
    IdStyle.NVIDIA: {"driverVersion": "580.95.05", "cudaVersion": "13.0"},
    IdStyle.NAME: {},
}
"""Attributes that all presets with such ids have, unless they give others: one driver serves all of NVIDIA's devices.

580 is a branch for data centres with long support, and its driver says CUDA 13.0 (NVIDIA's data center driver release
notes and CUDA's compatibility table).
"""


class Preset(Section):
    """A preset's file; of one that is loaded, the values of its bases are its own.

    `count` is 0 for a device model, which fits any number.
    """

    base: Word | None = None
    """Another preset, whose values hold where this one gives none."""
    description: Word = ""
    """What it is, in a few words."""
    resource: ResourceName = ""
    """The resource under which its vendor's plugin advertises it."""
    id_style: Annotated[IdStyle, choice(IdStyle)] = IdStyle.NAME
    """How ids look: `<name>-<index>`, or NVIDIA's UUIDs."""
    visible_devices_env: EnvName = ""
    """The variable that tells the vendor's runtime which devices a container gets."""
    count: Count = 0
    """How many devices a node has."""
    memory: Memory = 0
    """Memory of each device, as a Kubernetes quantity such as 16Gi."""
    numa: tuple[Index, ...] = ()
    """NUMA nodes: one for all devices, or one per device."""
    attributes: dict[str, AsWritten] = {}
    """Facts about each device, for templates; added to those of the base."""
    links: list[list[Index]] = []
    """Groups of devices, each linked to each; or a score for every pair, as `count` lists of `count` numbers."""
    link_score: Annotated[Whole, between(1)] = FAST_LINK
    """The score of a link within a group, 100 for one NVLink."""
    device_nodes: tuple[DriverNode, ...] = ()
    """Device nodes that the real device has."""
    partition_nodes: tuple[DriverNode, ...] | None = None
    """Device nodes that a partition of it has. Default: those of the device."""
    partitioning: Partitioning | None = None
    """How a device can be partitioned."""
    physics: PhysicsModel = PhysicsModel()
    """What a device draws and how warm it gets under load."""
    sources: dict[str, Text] = {}
    """Where the figures come from, by key."""
    unverified: tuple[Text, ...] = ()
    """Keys whose figures nobody has confirmed."""

    _name: str = PrivateAttr("")
    _pairs: Links = PrivateAttr(default_factory=dict)

    def loaded(self, name: str, pairs: Links) -> Self:
        """The preset under its name, with the links of each pair of devices and what one driver gives all of them."""
        copy = self.model_copy(update={"attributes": {**_DRIVERS[self.id_style], **self.attributes}})
        copy._name, copy._pairs = name, pairs
        return copy

    @property
    def name(self) -> str:
        return self._name

    @property
    def pairs(self) -> Links:
        """The links, by pair of devices."""
        return self._pairs

    @property
    def nodes_of_partitions(self) -> tuple[DriverNode, ...]:
        return self.device_nodes if self.partition_nodes is None else self.partition_nodes


_MAKER = re.compile(r"(nvidia|amd|intel|google)[-_ ]", re.IGNORECASE)


class UnknownPresetError(ConfigError):
    """No preset has that name. `message` and `hint` say so without a place, which only the caller knows."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.message = f"unknown preset {name!r}"
        near = did_you_mean(_MAKER.sub("", name, count=1), known)
        self.hint = listed(known, near, lead="known:", command="vdev presets")
        super().__init__(refusal(Place(""), self.message, self.hint).problems)


def load_preset(name: str, texts: PresetTexts | None = None) -> Preset:
    """The preset of that name, of those that `texts` finds, or of ours.

    Raises ConfigError with every problem of the files that it takes, and UnknownPresetError.
    """
    return _packaged(name) if texts is None or texts.only_ours else _load(name, texts)


@cache  # our own files do not change
def _packaged(name: str) -> Preset:
    return _load(name, PresetTexts())


def _load(name: str, texts: PresetTexts) -> Preset:
    report, model = _read(name, texts)
    seen, of_base = [name], report
    while model.base is not None:
        document = of_base.document
        place = document.values.get(("base",), Place(document.files[0]))
        if model.base in seen:
            chain = " -> ".join((*seen, model.base))
            raise refusal(place, f"a preset cannot be based on itself: {chain}", path=("base",))
        seen.append(model.base)
        try:
            of_base, base = _read(model.base, texts)
        except UnknownPresetError as unknown:
            raise refusal(place, unknown.message, unknown.hint, path=("base",)) from None
        model = _over(base, model)
    return _preset(name, model, report)


def _read(name: str, texts: PresetTexts) -> tuple[ProblemReport, Preset]:
    found = texts.find(name)
    if found is None:
        raise UnknownPresetError(name, texts.names())
    return checked(read_text(found.text, found.file), Preset)


def _over(base: Preset, model: Preset) -> Preset:
    """The base with what the preset itself says in place of it; the result's base is the base's own."""
    own = {name: getattr(model, name) for name in model.model_fields_set - {"base"}}
    return base.model_copy(update={**own, "attributes": base.attributes | model.attributes})


def _preset(name: str, model: Preset, report: ProblemReport) -> Preset:
    if model.numa:
        numa_nodes(model.numa, model.count, ("numa",), report)
    pairs = device_links(model.links, model.count, ("links",), report, score=model.link_score)
    if report.problems:
        raise ConfigError(tuple(report.problems))
    return model.loaded(name, pairs)
