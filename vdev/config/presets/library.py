"""Presets: real device models, or whole nodes of one, described in the words of the `virtual` block.

Owns where the files are looked for (the user's directories first, then `vdev/presets`) and what `base` means; their
form is in `preset_file`. Only the file that is asked for is read, and those it is based on. What an entry makes of a
preset is decided in `virtual_block`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import combinations
from pathlib import Path as FilePath

from ...core.model.device import EMPTY, IdStyle
from ...core.model.problem import did_you_mean
from ...core.partitions.geometry import Geometry
from ...errors import ConfigError
from ..document.loader import Document, read_bytes
from ..document.position import Finding, Place, finding
from ..schema.sources import MAX_LINKED
from .preset_file import NodeModel, PresetModel, problem_at, validated

_SUFFIXES = (".yaml", ".yml")
_LINK = 100  # the score of one link, on NVIDIA's scale
_JOINED = ("attributes", "sources")  # mappings whose keys are added to those of the base


class UnknownPresetError(ConfigError):
    """No preset has that name. `message` and `hint` say so without a place, which only the caller knows."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.message = f"unknown preset {name!r}"
        near = did_you_mean(name, known)
        self.hint = f"{near} " * bool(near) + "known: " + ", ".join(known)
        super().__init__((finding(Place(""), (), self.message, hint=self.hint),))


@dataclass(frozen=True, slots=True)
class PresetNode:
    """A device node of the real device: {index} in `path` stands for the device's index + `first_index`."""

    path: str
    permissions: str = "rw"
    first_index: int = 0

    def path_of(self, index: int) -> str:
        """The path for a device."""
        return self.path.replace("{index}", str(index + self.first_index))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What a preset says, with its bases' words merged in.

    `count` is 0 for a device model, which fits any number. `links` maps pairs of indices, the lower first, to scores
    (100 for one NVLink). `numa` is empty, or holds one node for all devices, or one per device.
    """

    name: str
    description: str = ""
    resource: str = ""
    id_style: IdStyle = IdStyle.NAME
    visible_devices_env: str = ""
    count: int = 0
    memory: int = 0
    numa: tuple[int, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    device_nodes: tuple[PresetNode, ...] = ()
    partition_nodes: tuple[PresetNode, ...] = ()
    geometry: Geometry | None = None
    sources: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    unverified: tuple[str, ...] = ()


def load_preset(name: str, dirs: Sequence[FilePath] = ()) -> Preset:
    """The preset of that name: a file `<name>.yaml` of one of `dirs`, the first that has it, or one of ours.

    Raises ConfigError with every problem of the files that it takes, and UnknownPresetError.
    """
    return _load(name, tuple(dirs)) if dirs else _packaged(name)


def preset_names(dirs: Sequence[FilePath] = ()) -> tuple[str, ...]:
    """All presets that can be named, sorted. Raises ConfigError for a directory that cannot be read."""
    return tuple(sorted({name for directory in _directories(dirs) for name in _files(directory)}))


@cache  # our own files do not change
def _packaged(name: str) -> Preset:
    return _load(name, ())


def _load(name: str, dirs: tuple[FilePath, ...]) -> Preset:
    document, model = _read(name, dirs)
    seen, at = [name], document
    while model.base is not None:
        place = at.values.get(("base",), Place(at.files[0]))
        if model.base in seen:
            chain = " -> ".join((*seen, model.base))
            raise ConfigError((finding(place, ("base",), f"a preset cannot be based on itself: {chain}"),))
        seen.append(model.base)
        try:
            at, base = _read(model.base, dirs)
        except UnknownPresetError as unknown:
            raise ConfigError((finding(place, ("base",), unknown.message, hint=unknown.hint),)) from None
        model = _over(base, model)
    return _preset(name, model, document)


def _read(name: str, dirs: Sequence[FilePath]) -> tuple[Document, PresetModel]:
    for directory in _directories(dirs):
        file = _files(directory).get(name)
        if file is not None:
            try:
                if not file.is_file():  # a pipe would keep its reader waiting
                    raise ConfigError((finding(Place(str(file)), (), "is not a plain file"),))
                data = file.read_bytes()
            except OSError as error:
                raise ConfigError((finding(Place(str(file)), (), f"cannot be read: {error.strerror}"),)) from error
            document = read_bytes(data, str(file))
            return document, validated(document)
    raise UnknownPresetError(name, preset_names(dirs))


def _directories(dirs: Sequence[FilePath]) -> Iterator[Traversable]:
    yield from dirs
    yield resources.files("vdev").joinpath("presets")


def _files(directory: Traversable) -> dict[str, Traversable]:
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name, reverse=True)  # .yaml wins over .yml
    except OSError as error:
        message = f"the presets directory cannot be read: {error.strerror}"
        raise ConfigError((finding(Place(str(directory)), (), message),)) from error
    return {entry.name.rpartition(".")[0]: entry for entry in entries if entry.name.endswith(_SUFFIXES)}


def _over(base: PresetModel, model: PresetModel) -> PresetModel:
    """The base with what the preset itself says in place of it; the result's base is the base's own."""
    own = {name: getattr(model, name) for name in model.model_fields_set - {"base", *_JOINED}}
    joined = {name: {**getattr(base, name), **getattr(model, name)} for name in _JOINED}
    said = {PresetModel.model_fields[name].alias for name in own} | {f"attributes.{key}" for key in model.attributes}
    unverified = [*model.unverified, *(key for key in base.unverified if key not in said)]
    return base.model_copy(update={**own, **joined, "unverified": unverified})


def _preset(name: str, model: PresetModel, document: Document) -> Preset:
    count = model.count or 0
    problems: list[Finding] = []
    numa = model.numa or []
    if len(numa) not in (0, 1, count):
        message = f"{len(numa)} NUMA nodes for {count or 'any number of'} devices"
        problems.append(
            problem_at(document, ("numa",), message, "one node for all devices, or count and one per device")
        )
    links: dict[tuple[int, int], int] = {}
    try:
        links = _links(model.links or [], count, model.link_score or _LINK)
    except ValueError as error:
        problems.append(problem_at(document, ("links",), str(error)))
    if problems:
        raise ConfigError(tuple(problems))
    nodes = _nodes(model.device_nodes)
    return Preset(
        name=name,
        description=model.description or "",
        resource=model.resource or "",
        id_style=model.id_style or IdStyle.NAME,
        visible_devices_env=model.visible_devices_env or "",
        count=count,
        memory=model.memory or 0,
        numa=tuple(numa),
        attributes=dict(model.attributes),
        links=links,
        device_nodes=nodes,
        partition_nodes=nodes if model.partition_nodes is None else _nodes(model.partition_nodes),
        geometry=model.partitioning.to_geometry() if model.partitioning else None,
        sources=dict(model.sources),
        unverified=tuple(model.unverified),
    )


def _nodes(models: Sequence[NodeModel] | None) -> tuple[PresetNode, ...]:
    return tuple(PresetNode(model.path, model.permissions, model.first_index) for model in models or ())


def _links(rows: list[list[int]], count: int, score: int) -> dict[tuple[int, int], int]:
    """Scores by pair. `count` rows of `count` numbers are scores, as in the configuration; anything else is groups."""
    if rows and count > MAX_LINKED:
        raise ValueError(f"links are for at most {MAX_LINKED} devices, and the preset has a count of {count}")
    if rows and len(rows) == count and all(len(row) == count for row in rows):
        for one, other in combinations(range(count), 2):
            if rows[one][other] != rows[other][one]:
                raise ValueError(f"the scores of {one} with {other} and of {other} with {one} differ")
        return {(one, other): rows[one][other] for one, other in combinations(range(count), 2) if rows[one][other]}
    for index in (index for row in rows for index in row):
        if index >= count:
            raise ValueError(f"there is no device {index}; the preset has a count of {count}")
    return {pair: score for row in rows for pair in combinations(sorted(set(row)), 2)}
