"""CDI specifications as data: kinds, names, and the edits of each device.

Sources: the CDI specification 0.3.0 to 1.0.0, and containerd. containerd crashes on one-letter classes, cannot resolve
a device that is in two files, ignores a file whose version is too low for its content, and rejects a device without
edits.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import Annotated, Any, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..model.device import EMPTY, DeviceNode, Mount
from ..model.names import digest, domain_and_name

VENDOR_PREFIX = "k8s.device-plugin."
Document = dict[str, Any]
"""A specification, as JSON."""
CdiDevice = dict[str, Any]
"""A device of a specification, with its container edits, as JSON."""
_NOT_IN_CLASS = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_FILE = 200  # characters of a kind in a file name, which leaves room for the suffix of temporary files


def kind(resource: str) -> str:
    """The CDI kind of a declared resource: `acme.dev/npu` gives `k8s.device-plugin.acme.dev/npu`.

    If the name is not a valid CDI class (one letter, a leading digit), it becomes `device-<name>-<fingerprint>`, as the
    runtime would ignore the file or crash. The fingerprint avoids a conflict with a resource of that name.
    """
    domain, name = domain_and_name(resource)
    name = _NOT_IN_CLASS.sub("-", name)
    if len(name) == 1 or not name[:1].isalpha():
        name = f"device-{name}-{digest(resource)}"
    return f"{VENDOR_PREFIX}{domain}/{name}"


def qualified(cdi_kind: str, name: str) -> str:
    return f"{cdi_kind}={name}"


def file_name(cdi_kind: str) -> str:
    """The file name of a kind. The prefix marks the file as written by vdev.

    A fingerprint is appended if the name would be too long, or if the domain contains a `-`. As `-` also separates
    domain and class, another kind could otherwise have the same file name.
    """
    plain = cdi_kind.replace("/", "-")
    domain = cdi_kind.partition("/")[0].removeprefix(VENDOR_PREFIX)
    if "-" in domain or len(plain) > _MAX_FILE:
        plain = f"{plain[:_MAX_FILE]}-{digest(cdi_kind)}"
    return f"vdev-{plain}.json"


def document(cdi_kind: str, devices: Iterable[CdiDevice]) -> Document:
    return {"cdiVersion": _version(cdi_kind), "kind": cdi_kind, "devices": sorted(devices, key=itemgetter("name"))}


def cdi_device(
    name: str, *, env: Mapping[str, str] = EMPTY, nodes: Iterable[DeviceNode] = (), mounts: Iterable[Mount] = ()
) -> CdiDevice:
    """A device of a specification, with its container edits. A device without edits is invalid."""
    edits = {
        "env": [f"{key}={value}" for key, value in sorted(env.items())],
        "deviceNodes": [_node(node) for node in nodes],
        "mounts": [_mount(mount) for mount in mounts],
    }
    return {"name": name, "containerEdits": {key: each for key, each in edits.items() if each}}


def edits_by_name(document: Document) -> dict[str, dict[str, Any]]:
    """The edits of each device of a specification, by its fully-qualified name."""
    return {qualified(document["kind"], each["name"]): each["containerEdits"] for each in document["devices"]}


def with_leftovers(
    wanted: Mapping[str, Document],
    present: Iterable[Document],
    kept: Collection[tuple[str, str]],
) -> dict[str, Document]:
    """The `wanted` specifications, with the devices of the `present` ones that are `kept`, by kind and name.

    A container that restarts gets the same CDI names again. So a device that a pod still holds must remain resolvable
    after it was removed from the configuration.
    """
    merged = dict(wanted)
    for old in present:
        kind = old["kind"]
        names = {device["name"] for device in merged[kind]["devices"]} if kind in merged else set()
        left = [each for each in old["devices"] if each["name"] not in names and (kind, each["name"]) in kept]
        if left:
            base = merged.get(kind, {**old, "devices": []})
            merged[kind] = {**base, "devices": [*base["devices"], *left]}
    return merged


_Texts = list[str]
_Parts = list[dict[str, str | int | _Texts]]  # nodes or mounts


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _EditsForm(_Form):
    env: _Texts = []
    device_nodes: _Parts = Field([], alias="deviceNodes")
    mounts: _Parts = []


class _DeviceForm(_Form):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.:-]{0,250}[A-Za-z0-9])?$")]
    edits: Annotated[_EditsForm, Field(alias="containerEdits")]


class _DocumentForm(_Form):
    version: Annotated[str, Field(alias="cdiVersion", pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){1,2}$")]
    kind: Annotated[
        str, Field(pattern="^[A-Za-z][A-Za-z0-9_.-]{0,300}[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_.-]{0,250}[A-Za-z0-9]$")
    ]
    devices: Annotated[list[_DeviceForm], Field(min_length=1)]


def is_document(value: object) -> TypeGuard[Document]:
    """Whether a parsed file is a specification of the form that `document` makes."""
    try:
        _DocumentForm.model_validate(value)
    except ValidationError:
        return False
    return True


def device_id(device: Mapping[str, Any]) -> str:
    """The id of a device in a document of vdev, from its variable, because its name may be an index."""
    variables: list[str] = device["containerEdits"].get("env", [])
    return next((each.partition("=")[2] for each in variables if "_DEVICE_" in each), str(device["name"]))


def _node(node: DeviceNode) -> dict[str, Any]:
    fields: dict[str, Any] = {"path": node.container_path, "permissions": node.permissions}
    if node.type:
        return fields | {"type": node.type, "major": node.major, "minor": node.minor}
    return fields if node.host_path == node.container_path else fields | {"hostPath": node.host_path}


def _mount(mount: Mount) -> dict[str, Any]:
    if mount.tmpfs:  # a tmpfs has no source, but CDI requires an absolute path
        path, options = mount.container_path, ["nosuid", "nodev", "rw"]
        return {"hostPath": path, "containerPath": path, "type": "tmpfs", "options": options}
    # No nodev, because mounted serial lines could not be opened. The device cgroup restricts access instead.
    options = ["rbind", "nosuid", "ro" if mount.read_only else "rw"]
    return {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options}


def _version(cdi_kind: str) -> str:
    """The version of the CDI specification. Runtimes ignore a file whose version is too low for its content.

    All maintained releases of runtimes with CDI support 0.5.0; a class with dots needs 0.6.0.
    """
    return "0.6.0" if "." in cdi_kind.partition("/")[2] else "0.5.0"
