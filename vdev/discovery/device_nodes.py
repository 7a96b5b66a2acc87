"""What all sources of real devices need: a node's place in the container, its NUMA node, and which names are usable."""

import posixpath
from collections.abc import Iterator

from ..core.model.syntax import template
from ..core.spec import NodeKind
from ..errors import HostError
from ..hostfs import FileInfo, HostRoot
from .found import is_usable

_SYS_DEVICES = "/sys/devices"


def container_path(wanted: str, host_path: str, values: dict[str, str]) -> str:
    """Where a host path appears in the container.

    `wanted` is empty for the same path, ends in "/" for a directory that takes the base name, else is a new name. It is
    a template. Raises template.TemplateError.
    """
    rendered = template.parse(wanted).render(values)
    if not rendered:
        return host_path
    return posixpath.join(rendered, posixpath.basename(host_path)) if rendered.endswith("/") else rendered


def nodes_below(host: HostRoot, directory: str) -> Iterator[tuple[str, FileInfo]]:
    """The device nodes in a directory and in those below it, each with its path as found; links to nodes count too."""
    for name, is_directory in sorted(host.entries(directory)):
        path = posixpath.join(directory, name)
        if not is_usable(name):
            continue
        if is_directory:
            yield from nodes_below(host, path)
        elif (info := looked_at(host, path)) is not None and info.is_device:
            yield path, info


def looked_at(host: HostRoot, path: str) -> FileInfo | None:
    """What stands at the path; None for nothing, a loop of links, or what must not be looked at."""
    try:
        return host.info(path)
    except HostError:
        return None


def node_key(info: FileInfo) -> str:
    """What a device node is, whatever it is called: its kind and numbers.

    Major 1 is /dev/null and the like: software, which people also put in the place of missing nodes. These are told
    apart by path.
    """
    is_software = info.kind is NodeKind.CHAR and info.major == 1
    return info.path if is_software else f"{info.kind} {info.major}:{info.minor}"


class Numa:
    """NUMA nodes by sysfs, remembered for one scan."""

    def __init__(self, host: HostRoot) -> None:
        self._host = host
        self._known: dict[str, int] = {}
        self._of_nodes: dict[FileInfo, int | None] = {}

    def of_node(self, info: FileInfo) -> int | None:
        """The NUMA node of a device node, or None when the kernel knows none."""
        if info not in self._of_nodes:
            kind = f"/sys/dev/{info.kind}"
            link = self._host.link(f"{kind}/{info.major}:{info.minor}")
            directory = posixpath.normpath(posixpath.join(kind, link)) if link else ""
            self._of_nodes[info] = self.of_directory(directory)
        return self._of_nodes[info]

    def of_directory(self, directory: str) -> int | None:
        """The NUMA node that the nearest ancestor of a sysfs device (or itself) belongs to, or None."""
        number = self._climb(directory)
        return number if number >= 0 else None

    def _climb(self, directory: str) -> int:
        if not directory.startswith(_SYS_DEVICES + "/"):
            return -1
        known = self._known.get(directory)
        if known is None:
            own = self._own(directory)
            known = own if own >= 0 else self._climb(posixpath.dirname(directory))
            self._known[directory] = known
        return known

    def _own(self, directory: str) -> int:
        try:
            return int(self._host.read_text(f"{directory}/numa_node") or -1)
        except (HostError, ValueError):
            return -1
