"""Finds presets: descriptions of real devices, or of whole nodes of them, in the words of the `virtual` block.

The user's directories come first, then `vdev/presets`. Only the file that is asked for is read, and those it is based
on. What an entry makes of a preset is decided in `compile.virtual_block`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from pydantic import ValidationError

from ...core.model.device import EMPTY, IdStyle
from ...core.model.place import KeyPath, Place
from ...core.model.problem import did_you_mean
from ...core.model.template import parse
from ...core.partitions.geometry import Geometry
from ...core.spec import NodeTemplate
from ...errors import ConfigError
from ..document.loader import read_bytes
from ..document.position import problem_at
from ..messages import explained
from ..report import Report
from ..topology import FAST_LINK, Links, device_links, numa_nodes
from .preset_file import NodeModel, PresetModel

_SUFFIXES = (".yaml", ".yml")


class UnknownPresetError(ConfigError):
    """No preset has that name. `message` and `hint` say so without a place, which only the caller knows."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.message = f"unknown preset {name!r}"
        near = did_you_mean(name, known)
        self.hint = f"{near} " * bool(near) + "known: " + ", ".join(known)
        super().__init__((problem_at(Place(""), (), self.message, hint=self.hint),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A preset's values, those of its bases included.

    `count` is 0 for a device model, which fits any number. `numa` is empty, or holds one node for all devices, or one
    per device.
    """

    name: str
    id_style: IdStyle = IdStyle.NAME
    visible_devices_env: str = ""
    count: int = 0
    memory: int = 0
    numa: tuple[int, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    links: Links = field(default_factory=dict)
    device_nodes: tuple[NodeTemplate, ...] = ()
    partition_nodes: tuple[NodeTemplate, ...] = ()
    geometry: Geometry | None = None


def load_preset(name: str, dirs: Sequence[Path] = ()) -> Preset:
    """The preset of that name: a file `<name>.yaml` of one of `dirs`, the first that has it, or one of ours.

    Raises ConfigError with every problem of the files that it takes, and UnknownPresetError.
    """
    return _load(name, tuple(dirs)) if dirs else _packaged(name)


def preset_names(dirs: Sequence[Path] = ()) -> tuple[str, ...]:
    """All presets that can be named, sorted. Raises ConfigError for a directory that cannot be read."""
    return tuple(sorted({name for directory in _directories(dirs) for name in _files(directory)}))


@cache  # our own files do not change
def _packaged(name: str) -> Preset:
    return _load(name, ())


def _load(name: str, dirs: tuple[Path, ...]) -> Preset:
    report, model = _read(name, dirs)
    seen, of_base = [name], report
    while model.base is not None:
        document = of_base.document
        place = document.values.get(("base",), Place(document.files[0]))
        if model.base in seen:
            chain = " -> ".join((*seen, model.base))
            raise _refused(place, f"a preset cannot be based on itself: {chain}", path=("base",))
        seen.append(model.base)
        try:
            of_base, base = _read(model.base, dirs)
        except UnknownPresetError as unknown:
            raise _refused(place, unknown.message, unknown.hint, path=("base",)) from None
        model = _over(base, model)
    return _preset(name, model, report)


def _read(name: str, dirs: Sequence[Path]) -> tuple[Report, PresetModel]:
    for directory in _directories(dirs):
        file = _files(directory).get(name)
        if file is not None:
            try:
                if not file.is_file():  # a pipe would keep its reader waiting
                    raise _refused(Place(str(file)), "is not a plain file")
                data = file.read_bytes()
            except OSError as error:
                raise _refused(Place(str(file)), f"cannot be read: {error.strerror}") from error
            report = Report(read_bytes(data, str(file)))
            return report, _validated(report)
    raise UnknownPresetError(name, preset_names(dirs))


def _validated(report: Report) -> PresetModel:
    document = report.document
    report.problems += document.problems
    try:
        model = PresetModel.model_validate(document.root)
    except ValidationError as error:
        report.problems += explained(error, document, PresetModel)
        raise ConfigError(tuple(report.problems)) from None
    if report.problems:
        raise ConfigError(tuple(report.problems))
    return model


def _refused(place: Place, message: str, hint: str = "", *, path: KeyPath = ()) -> ConfigError:
    return ConfigError((problem_at(place, path, message, hint=hint),))


def _directories(dirs: Sequence[Path]) -> Iterator[Traversable]:
    yield from dirs
    yield resources.files("vdev").joinpath("presets")


def _files(directory: Traversable) -> dict[str, Traversable]:
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name, reverse=True)  # .yaml wins over .yml
    except OSError as error:
        message = f"the presets directory cannot be read: {error.strerror}"
        raise _refused(Place(str(directory)), message) from error
    return {entry.name.rpartition(".")[0]: entry for entry in entries if entry.name.endswith(_SUFFIXES)}


def _over(base: PresetModel, model: PresetModel) -> PresetModel:
    """The base with what the preset itself says in place of it; the result's base is the base's own."""
    own = {name: getattr(model, name) for name in model.model_fields_set - {"base"}}
    return base.model_copy(update={**own, "attributes": base.attributes | model.attributes})


def _preset(name: str, model: PresetModel, report: Report) -> Preset:
    count = model.count or 0
    numa = numa_nodes(model.numa, count, ("numa",), report) if model.numa else ()
    links = device_links(model.links or [], count, ("links",), report, score=model.link_score or FAST_LINK)
    if report.problems:
        raise ConfigError(tuple(report.problems))
    nodes = _nodes(model.device_nodes)
    return Preset(
        name=name,
        id_style=model.id_style or IdStyle.NAME,
        visible_devices_env=model.visible_devices_env or "",
        count=count,
        memory=model.memory or 0,
        numa=numa,
        attributes=dict(model.attributes),
        links=links,
        device_nodes=nodes,
        partition_nodes=nodes if model.partition_nodes is None else _nodes(model.partition_nodes),
        geometry=model.partitioning.to_geometry() if model.partitioning else None,
    )


def _nodes(models: Sequence[NodeModel] | None) -> tuple[NodeTemplate, ...]:
    return tuple(
        NodeTemplate(path, path, model.permissions, model.first_index)
        for model in models or ()
        for path in [parse(model.path)]
    )
