"""The parts of an entry that hold templates: what containers get, health, the virtual node, labels, actions."""

from collections.abc import Callable, Mapping, Sequence

from ..model import template
from ..model.entry import ActionKind, ActionSpec, ContainerSpec, HealthSpec, MountTemplate, NodeTemplate
from ..model.problem import KeyPath
from ..model.template import Template, TemplateError
from ..model.virtual_node import LikeNode, PlainDirectory, PlainFile, PtyLine, StandIn
from . import entry
from .entry import Action
from .messages import ProblemReport
from .sources import VirtualNode

Parse = Callable[[str, KeyPath], Template]
"""Parses the template at a path."""


def parser(report: ProblemReport, attributes: frozenset[str]) -> Parse:
    """Parses the templates of one entry, and reports those that name what its devices lack.

    `attributes` are those that its devices have.
    """

    def parsed(text: str, path: KeyPath) -> Template:
        try:
            return template.parse(text, attributes=attributes)
        except TemplateError as error:
            report.error(path, str(error))
            return Template(text, (text,), ())

    return parsed


def container(model: entry.Container, parse: Parse, path: KeyPath) -> ContainerSpec:
    def paths(item: entry.ContainerNode | entry.ContainerMount, at: KeyPath) -> tuple[Template, Template]:
        host = parse(item.host_path, (*at, "hostPath"))
        return host, parse(item.container_path, (*at, "containerPath")) if item.container_path else host

    return ContainerSpec(
        env=texts(model.env, parse, (*path, "env")),
        nodes=tuple(
            NodeTemplate(*paths(node, (*path, "deviceNodes", number)), node.permissions)
            for number, node in enumerate(model.device_nodes)
        ),
        mounts=tuple(
            MountTemplate(*paths(mount, (*path, "mounts", number)), mount.read_only)
            for number, mount in enumerate(model.mounts)
        ),
        annotations=texts(model.annotations, parse, (*path, "annotations")),
    )


def health(model: entry.Health, parse: Parse, path: KeyPath) -> HealthSpec:
    return HealthSpec(
        probe=model.probe,
        interval=model.interval,
        timeout=model.timeout,
        path=parse(model.path, (*path, "path")) if model.path else None,
        content=model.content,
        command=tuple(parse(word, (*path, "command", number)) for number, word in enumerate(model.command)),
        unhealthy_threshold=model.unhealthy_threshold,
        healthy_threshold=model.healthy_threshold,
        start_grace=model.start_grace,
    )


def texts(models: Mapping[str, str], parse: Parse, path: KeyPath) -> tuple[tuple[str, Template], ...]:
    """Templates by name, such as labels of the node."""
    return tuple((key, parse(value, (*path, key))) for key, value in models.items())


def virtual_node(model: VirtualNode, parse: Parse, path: KeyPath) -> StandIn:
    """The node or file that a container gets for a virtual device."""
    inside = parse(model.container_path or "/dev/{id}", (*path, "containerPath"))
    if model.like is not None:
        return LikeNode(container_path=inside, like=model.like, permissions=model.permissions or "rw")
    if model.pty is not None:
        return PtyLine(
            container_path=inside,
            end=model.pty,
            answers=texts(model.answers, parse, (*path, "answers")),
            otherwise=None if model.otherwise is None else parse(model.otherwise, (*path, "otherwise")),
        )
    read_only = bool(model.read_only)
    if model.file is not None:
        return PlainFile(container_path=inside, content=parse(model.file, (*path, "file")), read_only=read_only)
    files = texts(model.directory or {}, parse, (*path, "directory"))
    return PlainDirectory(container_path=inside, files=files, read_only=read_only)


def actions(models: Sequence[Action], parse: Parse, path: KeyPath) -> tuple[ActionSpec, ...]:
    return tuple(_action(model, parse, (*path, number)) for number, model in enumerate(models))


def _action(model: Action, parse: Parse, path: KeyPath) -> ActionSpec:
    if model.truncate is not None:
        return ActionSpec(kind=ActionKind.TRUNCATE, path=parse(model.truncate, (*path, "truncate")))
    if model.chmod is not None:
        mode = int(model.mode or "0660", 8)
        return ActionSpec(kind=ActionKind.CHMOD, path=parse(model.chmod, (*path, "chmod")), mode=mode)
    words = tuple(parse(word, (*path, "command", number)) for number, word in enumerate(model.command))
    return ActionSpec(kind=ActionKind.COMMAND, command=words, timeout=model.timeout or 10.0)
