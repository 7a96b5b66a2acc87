"""The node of a world: the edits of its configuration file, its hardware, and which ids share hardware.

It shares no code with the plugin: ids and pieces of hardware follow from the documented naming. Changes take numbers
that select among what exists, modulo its count, so an event works no matter what happened before.
"""

import itertools
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.worlds.claim_model import ClaimModel
from vdev.hostfs.root import inspect
from vdev.model.sources import NodeKind

SLICES = 4
SIZES = {"1x": 1, "2x": 2}
LAYOUTS: tuple[tuple[str, ...], ...] = (
    (),
    ("2x@0", "2x@2"),
    ("1x@0", "1x@1", "1x@2", "1x@3"),
    ("2x@0", "1x@2", "1x@3"),
    ("1x@0", "2x@2"),
    ("1x@1", "1x@2"),
)
NODES = 6  # device nodes that may be plugged in, for two entries that share them
LINES = 4  # serial lines that may be plugged in, each with a probe
STRATEGIES = ("envvar", "cdi-cri", "cdi-annotations", "envvar, cdi-cri", "volume-mounts")
RULES: tuple[str, ...] = (
    "{name: sick, devices: [box], at: 20s, for: 30s, every: 3m, health: Unhealthy, reason: drill}",
    "{name: flap, devices: [npu/0], at: 10s, for: 1m, flap: {up: 7s, down: 3s}}",
    "{name: away, devices: [npu/1], at: 15s, for: 1m, every: 5m, remove: true}",
    "{name: slow, at: 5s, for: 2m, rpc: Allocate, delay: {p50: 200ms, max: 8s}}",
    "{name: no, at: 5s, for: 1m, rpc: Allocate, everyNth: 2, error: {code: UNAVAILABLE, message: drill}}",
    "{name: hang, at: 30s, for: 20s, rpc: Allocate, hang: true}",
    "{name: late, at: 0s, for: 45s, register: {delay: 20s}}",
    "{name: cut, at: 25s, every: 40s, times: 4, stream: {close: true}}",
    "{name: lost, at: 25s, every: 50s, times: 3, socket: {delete: true}}",
    "{name: swapped, at: 35s, every: 70s, times: 3, socket: {replace: true}}",
    "{name: blind, at: 10s, for: 3m, podResources: {unavailable: true}}",
    "{name: spoilt, at: 10s, for: 40s, cdi: {missing: true}}",
    "{name: ends, at: 5m, process: {exit: 137}}",
)
BROKEN = (
    "version: v1\ndevices: [",
    "version: v2\n",
    "version: v1\ndevices:\n- {name: npu, resource: npu}\n",
    "version: v1\ndevices:\n" + "- {name: a, resource: acme.dev/a, virtual: {count: 2}}\n" * 2,
    "",
)
_PART = re.compile(r"(?P<device>npu-\d+)(-(?P<profile>\dx)-(?P<start>\d+))?")
_NODE = re.compile(r"(left|right)-(?P<node>w\d+)")


def inspect_marked(path: str) -> tuple[NodeKind, int, int]:
    """The type of a path, where small plain files replace device nodes, which would need root."""
    kind, major, minor = inspect(path)
    name = posixpath.basename(path)
    if kind is NodeKind.FILE and name.startswith(("w", "tty")):
        number = int(name.lstrip("wtyW"))
        return NodeKind.CHAR, 10, number + (NODES if name.startswith("tty") else 0)
    return kind, major, minor


@dataclass(slots=True)
class NodeModel:
    """A node below `root`."""

    root: Path
    npus: str = "acme.dev/npu"
    layouts: list[int] = field(default_factory=lambda: [0, 0])
    boxes: int = 2
    box: str = "acme.dev/box"
    sides: list[str] = field(default_factory=lambda: ["left"] * 3 + ["right"] * 3)
    replicas: dict[str, int] = field(default_factory=dict)
    strategy: int = 0
    rules: tuple[int, ...] = ()
    claims: ClaimModel | None = None

    # --- the file -----------------------------------------------------------------------------------------------------

    @property
    def file(self) -> Path:
        return self.root / "vdev.yaml"

    def change(self, what: int, one: int, other: int) -> str:
        """Repartition, share, rename, resize, move, and so on. Returns what was done."""
        changes = (
            *("cut", "cut", "cut", "share", "share", "rename", "rename box", "resize", "move", "move"),
            *("strategy", "faults", "faults", "no faults"),
        )
        chosen = changes[what % len(changes)]
        match chosen:
            case "cut":
                self.layouts[one % len(self.layouts)] = other % len(LAYOUTS)
            case "share":
                names = self.resources()
                self.replicas[names[one % len(names)]] = other % 3 + 1
            case "rename":
                self.npus = "acme.dev/chip" if self.npus == "acme.dev/npu" else "acme.dev/npu"
            case "rename box":
                self.box = "acme.dev/crate" if self.box == "acme.dev/box" else "acme.dev/box"
            case "resize":
                self.boxes = one % 5
            case "move":
                self.sides[one % NODES] = ("left", "right")[other % 2]
            case "strategy":
                self.strategy = one % len(STRATEGIES)
            case "faults":
                self.rules = tuple(sorted({one % len(RULES), other % len(RULES)}))
            case "no faults":
                self.rules = ()
        return chosen

    def resources(self) -> list[str]:
        """The resources that may be shared, by name."""
        names = {self.npus, self.box, "acme.dev/left", "acme.dev/right", "acme.dev/line"}
        return sorted(names | {f"acme.dev/mig-{profile}" for profile in SIZES})

    def text(self) -> str:
        strategies = f"deviceListStrategy: [{STRATEGIES[self.strategy]}]"
        lines = ["version: v1", f"flags: {{migStrategy: mixed, plugin: {{{strategies}}}}}"]
        lines.append("devices:")
        profiles = ", ".join(f"{name}: {{slices: {size}, memory: {size}Gi}}" for name, size in SIZES.items())
        partitioning = f"{{slices: {SLICES}, profiles: {{{profiles}}}}}"
        virtual = f"{{count: {len(self.layouts)}, memory: {SLICES}Gi, partitioning: {partitioning}}}"
        cuts = ", ".join(f'"{i}": [{", ".join(LAYOUTS[each])}]' for i, each in enumerate(self.layouts) if each)
        cut = f", partitions: {{{cuts}}}" if cuts else ""
        lines.append(f"- {{name: npu, resource: {self.npus}, virtual: {virtual}{cut}}}")
        if self.boxes:
            lines.append(f"- {{name: box, resource: {self.box}, virtual: {{count: {self.boxes}}}}}")
        for side in ("left", "right"):
            numbers = "".join(str(number) for number, each in enumerate(self.sides) if each == side)
            if numbers:
                lines.append(f'- {{name: {side}, resource: acme.dev/{side}, glob: "/dev/w[{numbers}]"}}')
        probe = f'health: {{probe: file, path: "{self.root}/health/{{id}}", content: ok, interval: 20s}}'
        lines.append(f'- {{name: line, resource: acme.dev/line, glob: "/dev/ttyW*", {probe}}}')
        lines += self.claims.entries() if self.claims else []
        lines += self._sharing()
        if self.rules:
            lines += ["faults:", "  seed: 7", "  rules:", *(f"  - {RULES[each]}" for each in self.rules)]
        return "\n".join(lines) + "\n"

    def plan(self) -> dict[str, frozenset[str]]:
        """The ids of each resource that the node must have at the end."""
        whole: dict[str, list[str]] = {}
        for index, layout in enumerate(self.layouts):
            if not layout:
                whole.setdefault(self.npus, []).append(f"npu-{index}")
            for item in LAYOUTS[layout]:
                profile, _, start = item.partition("@")
                whole.setdefault(f"acme.dev/mig-{profile}", []).append(f"npu-{index}-{profile}-{start}")
        if self.boxes:
            whole[self.box] = [f"box-{index}" for index in range(self.boxes)]
        for number in range(NODES):
            side = self.sides[number]
            if self.is_plugged(number):
                whole.setdefault(f"acme.dev/{side}", []).append(f"{side}-w{number}")
        plugged = [number for number in range(LINES) if self.is_plugged(NODES + number)]
        whole["acme.dev/line"] = [f"line-ttyW{number}" for number in plugged]
        whole |= self.claims.listed() if self.claims else {}
        shared = {name: self.replicas.get(name, 1) for name in whole}
        return {
            name: frozenset(ids if shared[name] == 1 else (f"{id_}::{n}" for id_ in ids for n in range(shared[name])))
            for name, ids in whole.items()
            if ids
        }

    def _sharing(self) -> list[str]:
        known = {self.npus, "acme.dev/left", "acme.dev/right", "acme.dev/line"}
        known |= {self.box} if self.boxes else set()
        cut = itertools.chain.from_iterable(LAYOUTS[each] for each in self.layouts)
        known |= {f"acme.dev/mig-{each.partition('@')[0]}" for each in cut}
        shared = [
            f"{{name: {name}, replicas: {count}}}"
            for name, count in sorted(self.replicas.items())
            if count > 1 and name in known
        ]
        return [f"sharing: {{timeSlicing: {{resources: [{', '.join(shared)}]}}}}"] if shared else []

    # --- the hardware -------------------------------------------------------------------------------------------------

    def build(self) -> None:
        for name in ("host/dev", "host/sys/devices", "host/sys/bus", "host/sys/class", "health"):
            (self.root / name).mkdir(parents=True)
        for number in range(NODES):
            self.plug(number)
        for number in range(LINES):
            self.set_health(number, ok=True)
        self.plug(NODES)

    def plug(self, number: int) -> str:
        """Plug in a device. Returns which."""
        path = self._node(number)
        path.write_text("")
        return path.name

    def unplug(self, number: int) -> str:
        """Unplug a device. Returns which."""
        path = self._node(number)
        path.unlink(missing_ok=True)
        return path.name

    def is_plugged(self, number: int) -> bool:
        return self._node(number).exists()

    def set_health(self, number: int, *, ok: bool) -> str:
        """Change the result of the probe of a serial line. Returns of which."""
        name = f"line-ttyW{number % LINES}"
        fresh = self.root / "health" / f".{name}"
        fresh.write_text("ok" if ok else "broken")
        fresh.replace(self.root / "health" / name)
        return name

    def _node(self, number: int) -> Path:
        number %= NODES + LINES
        return self.root / "host/dev" / (f"w{number}" if number < NODES else f"ttyW{number - NODES}")

    # --- ids that share hardware --------------------------------------------------------------------------------------

    @staticmethod
    def overlaps(one: str, other: str) -> bool:
        """Whether two ids have hardware in common. Replicas of one device do not count."""
        (base, _, replica), (its_base, _, its_replica) = one.partition("::"), other.partition("::")
        if base == its_base and replica and its_replica:
            return one == other
        return bool(_pieces(base) & _pieces(its_base))


def _pieces(base: str) -> frozenset[str]:
    if part := _PART.fullmatch(base):
        start, size = int(part["start"] or 0), SIZES[part["profile"]] if part["profile"] else SLICES
        return frozenset(f"{part['device']}/{each}" for each in range(start, start + size))
    if node := _NODE.fullmatch(base):
        return frozenset({node["node"]})
    return frozenset({base})


def clashes(users: Sequence[tuple[str, Iterable[tuple[str, str]]]]) -> list[str]:
    """Descriptions of hardware that two pods have in common. `users` are pods with their resources and ids.

    The same id of the same resource is no clash: only the kubelet can give it twice (finding `device-given-twice`).
    """
    found = []
    for (pod, mine), (other, theirs) in itertools.combinations(users, 2):
        for (resource, one), (its_resource, its) in itertools.product(mine, theirs):
            same = one == its and resource == its_resource
            if not same and (one == its or NodeModel.overlaps(one, its)):
                found.append(f"{one} of {pod} and {its} of {other} are the same hardware")
    return found
