"""`vdev record`: this node's devices as a configuration that simulates them elsewhere.

The file has virtual devices with the ids, NUMA nodes and health of the real ones. Devices that differ only in their id,
NUMA node and place become one entry. The kubelet knows only the replicas of a shared device; they become one device
that is shared again.
"""

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import posixpath
import re
import secrets
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import config
from ..deviceplugin import podresources
from ..deviceplugin.podresources import KubeletDevice
from ..discovery.sysfs_source import SysTree
from ..errors import HostError, UsageError, VdevError
from ..hostfs import HostRoot
from ..importers.draft import Draft
from ..model.device import REPLICA_MARK, base_id, grouped, replica_id
from . import common, options

EPILOG = """examples:
  vdev record > node.yaml                       on a node, as root
  vdev record --anonymize > node.yaml           to share: serials, UUIDs, addresses and names are hashed
  vdev record --hardware                        also hardware that no plugin offers, such as USB sticks
  vdev plan node.yaml                           show what it has
  vdev run node.yaml --kubelet-dir /tmp/vdev-sim    run it, with vdev sim in another terminal

Sources are the kubelet (PodResources: devices of all plugins that are healthy or held by a pod, with ids and NUMA
nodes) and sysfs (PCI addresses, USB identities, vendors and models). GPUs of a known model use its preset, so that they
can have partitions and metrics. Unhealthy devices that no pod holds are missing, because the kubelet does not report
them. The node is not changed. The exit code is 1 if the kubelet does not answer; with --hardware, sysfs is enough.
"""

_TIMEOUT = 10.0  # seconds, for the kubelet's answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "vdev record [option ...]"
    parser.add_argument("--anonymize", action="store_true", help="hash the identities of this node and its devices")
    parser.add_argument("--salt", default="", help="with --anonymize: gives the same names each time [default: random]")
    parser.add_argument("--hardware", action="store_true", help="also make entries for hardware that no plugin offers")
    parser.add_argument("--domain", default="example.com", help="domain of their resources [default: example.com]")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write to this file, not to stdout")
    options.add(parser, "kubelet_dir", "host_root", "node_name")
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.salt and not args.anonymize:
        raise UsageError("--salt needs --anonymize")
    chosen = options.read(args)
    socket = chosen.pod_resources_socket
    devices = asyncio.run(podresources.listed(socket, within=_TIMEOUT))
    if devices is None and not args.hardware:
        raise VdevError(
            f"the kubelet does not answer at {socket}; run this on a node as root, give --kubelet-dir, or use "
            "--hardware to record only what sysfs shows"
        )
    hardware = pieces(chosen.host)
    salt = (args.salt or secrets.token_hex(16)) if args.anonymize else ""
    draft = Recording(hardware, salt).of(chosen.node_name, devices or (), args.domain if args.hardware else "")
    text = draft.text
    config.load_text(text, "the recording")  # an invalid recording is reported now
    if args.to is None or args.output == "json":
        common.show(args, {"text": text, "warnings": draft.warnings}, text.splitlines())
    else:
        try:
            args.to.write_text(text)
        except OSError as failed:
            raise UsageError(f"--to: {args.to} cannot be written: {failed.strerror}") from failed
    if args.output == "text":
        for warning in draft.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return 0


# --- the hardware -----------------------------------------------------------------------------------------------------

_NVIDIA_GPUS = "/proc/driver/nvidia/gpus"
_ACCELERATORS = ("0x03", "0x12", "0x0b40")  # display, processing accelerators, co-processors
_HUB = "09"
# The attributes in sysfs of each field.
_PCI = {"vendor": "vendor", "product": "device", "driver": "driver"}
_USB = {
    "vendor": "idVendor",
    "product": "idProduct",
    "serial": "serial",
    "maker": "manufacturer",
    "model": "product",
    "driver": "driver",
}


@dataclass(frozen=True, slots=True)
class HardwarePiece:
    """A piece of hardware. `kind` is pci or usb, `place` its address or port; ids are four hexadecimal digits.

    `serial` is a serial number, or the UUID of a GPU. `model` and `maker` are names, if they are known.
    """

    kind: str
    place: str
    vendor: str
    product: str
    serial: str = ""
    maker: str = ""
    model: str = ""
    driver: str = ""
    numa: int | None = None
    is_accelerator: bool = False

    @property
    def attributes(self) -> dict[str, str]:
        known = {"vendor": self.vendor, "product": self.product, "maker": self.maker, "model": self.model}
        return {key: text for key, text in known.items() if text}


def pieces(host: HostRoot) -> list[HardwarePiece]:
    """The hardware of the host that can be read. Blocks."""
    tree, gpus, found = SysTree(host), _gpus(host), []
    for address, directory in _members(tree, "pci"):
        read: dict[str, Any] = {field: tree.text(directory, name).removeprefix("0x") for field, name in _PCI.items()}
        uuid, model = gpus.get(address, ("", ""))
        node = tree.text(directory, "numa_node")  # -1 if it is not known
        numa = int(node) if node.isdecimal() else None
        is_accelerator = tree.text(directory, "class").startswith(_ACCELERATORS)
        found.append(
            HardwarePiece("pci", address, serial=uuid, model=model, numa=numa, is_accelerator=is_accelerator, **read)
        )
    for port, directory in _members(tree, "usb"):
        if ":" not in port and tree.text(directory, "bDeviceClass") != _HUB:  # an interface has a colon
            read = {field: tree.text(directory, name) for field, name in _USB.items()}
            found.append(HardwarePiece("usb", port, **read))
    return found


def _members(tree: SysTree, bus: str) -> list[tuple[str, str]]:
    try:
        return tree.members(f"/sys/bus/{bus}/devices")
    except HostError:
        return []


def _gpus(host: HostRoot) -> dict[str, tuple[str, str]]:
    """UUID and model of NVIDIA's GPUs by PCI address, from the driver's files."""
    found = {}
    with contextlib.suppress(HostError):
        for name, _ in host.entries(_NVIDIA_GPUS):
            with contextlib.suppress(HostError):  # of this GPU alone
                text = host.read_text(posixpath.join(_NVIDIA_GPUS, name, "information")) or ""
                lines = (line.partition(":") for line in text.splitlines())
                known = {key.strip(): value.strip() for key, _, value in lines}
                found[name.lower()] = known.get("GPU UUID", ""), known.get("Model", "")
    return found


# --- the devices ------------------------------------------------------------------------------------------------------

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_UNFIT = re.compile(rf"{REPLICA_MARK}|[^A-Za-z0-9._:-]+")  # in the id of a virtual device
_MAX_ID = 54  # leaves room for a replica's number
_NVIDIA = "10de"
_SHORTEST = 4  # characters of a serial number that is looked for in ids


@dataclass(frozen=True, slots=True)
class _Device:
    """A device of the file: its id there, its number of replicas, and which of them are unhealthy."""

    id: str
    resource: str
    numa: int | None
    replicas: int
    bad: tuple[str, ...]  # ids of slots; the device's own for all of them
    piece: HardwarePiece | None
    preset: str  # of its model; empty if there is none

    @property
    def kind(self) -> tuple[object, ...]:
        """The properties that all devices of an entry share."""
        known = self.preset or (self.piece and tuple(self.piece.attributes.items()))
        return self.resource, known, self.numa is not None, self.replicas


class Recording:
    """A recording in the making. With a salt, it hides identities."""

    def __init__(self, hardware: Sequence[HardwarePiece], salt: str = "") -> None:
        self.hardware = hardware
        self.salt = salt
        self.taken: set[str] = set()  # ids of devices
        self.draft = Draft("")

    def of(self, node: str, seen: Sequence[KubeletDevice], domain: str = "") -> Draft:
        """The file of a node. With a domain, hardware that no plugin offers becomes entries under it."""
        draft = self.draft
        draft.heading = f"Recorded by vdev record on {self.hidden(node)}: its devices, as virtual ones."
        if self.salt:
            draft.remarks.append("Serial numbers, UUIDs, PCI addresses, ids and the node's name are not the real ones.")
        devices = list(self._devices(seen))
        linked = {device.piece for device in devices if device.piece}
        rest = [each for each in self.hardware if each not in linked and (each.is_accelerator or each.kind == "usb")]
        if domain:
            devices += [self._bare(piece, domain) for piece in rest]
        else:
            draft.remarks += [f"No plugin offers: {self._described(piece)}" for piece in rest]
        for alike in grouped((device.kind, device) for device in devices).values():
            self._entry(alike)
        bad = sorted({each for device in devices for each in device.bad})
        if bad:
            rule = {"name": "recorded", "devices": bad, "health": "Unhealthy", "reason": "as recorded"}
            draft.sections["faults"] = {"rules": [rule]}
        if not draft.devices:
            draft.note("", "the kubelet lists no devices")
        return draft

    # --- identities ---

    def hidden(self, text: str, keep: str = "") -> str:
        """A pseudonym for an id, a serial number or a place.

        The prefix `keep` stays. A UUID becomes another UUID, and a PCI address another address.
        """
        if not self.salt or not text:
            return text
        digest = hashlib.blake2b(text.encode(), key=self.salt.encode()[:64], digest_size=16).digest()
        if hit := _UUID.search(text):
            return f"{text[: hit.start()]}{uuid.UUID(bytes=digest, version=5)}{text[hit.end() :]}"
        if _ADDRESS.search(text):
            return f"{0x1000 + digest[0] * 16:04x}:{digest[1]:02x}:{digest[2] % 32:02x}.{digest[3] % 8}"
        rest = text.removeprefix(keep)
        return f"{keep if rest != text else ''}{digest.hex()[:12]}"

    def _id(self, resource: str, original: str) -> str:
        """An id for the file: the device's own, unless it is too long, has invalid characters or is taken."""
        hidden = self.hidden(original, keep=f"{resource.rpartition('/')[2]}-")
        wish = _UNFIT.sub("-", hidden)[:_MAX_ID].strip("-._:") or "device"
        numbered = (f"{wish[: _MAX_ID - 6]}-{number}" for number in itertools.count(2))
        own = next(each for each in itertools.chain([wish], numbered) if each not in self.taken)
        if own != hidden:
            short = "ids must be short, plain and unique on a node"
            self.draft.note("", f"{resource}: {hidden} is {own} here: {short}")
        self.taken.add(own)
        return own

    def _described(self, piece: HardwarePiece) -> str:
        words = [piece.kind, f"{piece.vendor}:{piece.product}", self.hidden(piece.place), piece.maker, piece.model]
        words += [f"serial {self.hidden(piece.serial)}"] if piece.serial else []
        words += [f"driver {piece.driver}"] if piece.driver else []
        words += [f"NUMA node {piece.numa}"] if piece.numa is not None else []
        return " ".join(filter(None, words))

    # --- devices ---

    def _devices(self, seen: Sequence[KubeletDevice]) -> Iterator[_Device]:
        by_base = grouped(((each.resource, base_id(each.id)), each) for each in seen)
        numbers = {key: {_number(slot): slot.healthy for slot in slots} for key, slots in by_base.items()}
        most: dict[str, int] = {}
        for (resource, _), healthy in numbers.items():
            most[resource] = max(most.get(resource, 0), max(healthy) + 1)
        for (resource, base), slots in by_base.items():
            healthy = numbers[resource, base]
            is_shared = any(number >= 0 for number in healthy)
            # The kubelet does not report unhealthy replicas that no pod holds; other devices show how many there are.
            replicas = (max(healthy) + 1 if all(healthy.values()) else most[resource]) if is_shared else 1
            own = self._id(resource, base)
            bad = [replica_id(own, number) for number in range(replicas) if is_shared and not healthy.get(number)]
            if not any(healthy.values()):
                bad = [own]
            piece = _piece_of(base, self.hardware) or _only_model(resource, base, self.hardware)
            preset = "" if base.startswith("MIG-") else _preset(piece, resource)
            numa = next((slot.numa for slot in slots if slot.numa), ())
            if len(numa) > 1:
                self.draft.note("", f"{resource}: {own} belongs to several NUMA nodes; the file has only the first")
            yield _Device(own, resource, numa[0] if numa else None, replicas, tuple(bad), piece, preset)

    def _bare(self, piece: HardwarePiece, domain: str) -> _Device:
        preset, model = _preset(piece, ""), f"{piece.kind}-{piece.vendor}-{piece.product}"
        resource = config.load_preset(preset).resource if preset else f"{domain}/{model}"
        original = piece.serial if preset and piece.serial else f"{piece.kind}-{piece.serial or piece.place}"
        return _Device(self._id(resource, original), resource, piece.numa, 1, (), piece, preset)

    def _entry(self, alike: Sequence[_Device]) -> None:
        first = alike[0]
        virtual: dict[str, Any] = {"preset": first.preset} if first.preset else {}
        virtual["ids"] = [device.id for device in alike]
        nodes = [device.numa for device in alike if device.numa is not None]
        if nodes:
            virtual["numa"] = nodes[0] if len(set(nodes)) == 1 else nodes
        if first.piece is not None and not first.preset:
            virtual["attributes"] = first.piece.attributes
        name = self.draft.entry_name(first.resource.rpartition("/")[2])
        placed = [(device.id, device.piece) for device in alike if device.piece and device.piece.place]
        places = [f"{own}: {self._described(piece)}" for own, piece in placed]
        self.draft.entry({"name": name, "resource": first.resource, "virtual": virtual}, places)
        if first.replicas > 1:
            self.draft.share(first.resource, first.replicas, name)


def _number(slot: KubeletDevice) -> int:
    """The number of a replica, or -1 if it is not one."""
    text = slot.id.partition(REPLICA_MARK)[2]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else -1


def _piece_of(device: str, hardware: Iterable[HardwarePiece]) -> HardwarePiece | None:
    """The piece whose serial number, UUID or PCI address is in the id."""
    for piece in hardware:
        for name in (piece.serial, piece.place if piece.kind == "pci" else ""):
            if name and (device == name or (len(name) >= _SHORTEST and name in device)):
                return piece
    return None


def _only_model(resource: str, device: str, hardware: Iterable[HardwarePiece]) -> HardwarePiece | None:
    """The model of a GPU with an unknown UUID, if all GPUs of the node have one model. Its place is not known."""
    if not resource.startswith("nvidia.com/") or not device.startswith("GPU-"):
        return None
    models = {piece.product for piece in hardware if piece.vendor == _NVIDIA and piece.is_accelerator}
    return HardwarePiece("pci", "", _NVIDIA, models.pop()) if len(models) == 1 else None


def _preset(piece: HardwarePiece | None, resource: str) -> str:
    """The preset of a model. If a resource is given, the preset must be for its domain."""
    if piece is None:
        return ""
    hit = config.preset_of(piece.model) or config.preset_of(f"0x{piece.product}{piece.vendor}")
    if not hit:
        return ""
    domain = config.load_preset(hit).resource.partition("/")[0]
    return hit if not resource or resource.partition("/")[0] == domain else ""
