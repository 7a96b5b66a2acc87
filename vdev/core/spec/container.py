"""What a container gets besides the device list: templates, rendered per device."""

from dataclasses import dataclass

from ..model.syntax.template import Template


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A device node whose paths are rendered per device, with `{index}` counting from `first_index`."""

    host_path: Template
    container_path: Template
    permissions: str = "rw"
    first_index: int = 0


@dataclass(frozen=True, slots=True)
class MountTemplate:
    """A bind mount whose paths are rendered per device."""

    host_path: Template
    container_path: Template
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """What each container gets besides the device list."""

    env: tuple[tuple[str, Template], ...] = ()
    nodes: tuple[NodeTemplate, ...] = ()
    mounts: tuple[MountTemplate, ...] = ()
    annotations: tuple[tuple[str, Template], ...] = ()


NOTHING_MORE = ContainerSpec()
