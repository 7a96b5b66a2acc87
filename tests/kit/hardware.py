"""A small model of a node's hardware for tests: the devices of a configuration, and which ids share hardware.

It shares no code with the plugin. Ids and pieces of hardware follow from the documented names.
"""

from dataclasses import dataclass, field

SLICES = 4
SIZES = {"1x": 1, "2x": 2}
LAYOUTS = (
    None,
    ("2x@0", "2x@2"),
    ("1x@0", "1x@1", "1x@2", "1x@3"),
    ("2x@0", "1x@2", "1x@3"),
    ("1x@0", "2x@2"),
    ("1x@1", "1x@2"),
)
NODES = ("null", "zero", "full")  # in /dev of every Linux


@dataclass(frozen=True, slots=True)
class Part:
    """The pieces of hardware behind a device id. With `replica`, the id is one of several replicas of `base`."""

    base: str
    pieces: frozenset[str]
    replica: bool


@dataclass(slots=True)
class Node:
    """A node's configuration, which `change` modifies at random. `parts` has all ids that the node ever had."""

    npus: str = "acme.dev/npu"
    layouts: list[tuple[str, ...] | None] = field(default_factory=lambda: [None, None])
    boxes: int = 2
    box: str = "acme.dev/box"
    sides: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NODES, "left"))
    replicas: dict[str, int] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)

    def change(self, dice):
        """Repartition, share, rename, resize, or move a device node to the other entry. Returns the kind of change."""
        what = dice.choice(["cut", "cut", "cut", "share", "share", "rename", "rename box", "resize", "move"])
        match what:
            case "cut":
                self.layouts[dice.randrange(len(self.layouts))] = dice.choice(LAYOUTS)
            case "share":
                self.replicas[dice.choice(sorted(self.whole()))] = dice.choice([1, 2, 3])
            case "rename":
                self.npus = dice.choice(["acme.dev/npu", "acme.dev/chip"])
            case "rename box":
                self.box = dice.choice(["acme.dev/box", "acme.dev/crate"])
            case "resize":
                self.boxes = dice.choice([0, 1, 2, 3])
            case "move":
                self.sides[dice.choice(NODES)] = dice.choice(["left", "right"])
        return what

    def whole(self):
        """Return the parts of each resource without sharing."""
        offered = {}
        for index, layout in enumerate(self.layouts):
            name = f"npu-{index}"
            if layout is None:
                pieces = frozenset(f"{name}/{each}" for each in range(SLICES))
                offered.setdefault(self.npus, []).append(Part(name, pieces, replica=False))
            for item in layout or ():
                profile, _, start = item.partition("@")
                slices = range(int(start), int(start) + SIZES[profile])
                part = Part(f"{name}-{profile}-{start}", frozenset(f"{name}/{each}" for each in slices), replica=False)
                offered.setdefault(f"acme.dev/mig-{profile}", []).append(part)
        for index in range(self.boxes):
            name = f"box-{index}"
            offered.setdefault(self.box, []).append(Part(name, frozenset({name}), replica=False))
        for node, side in self.sides.items():
            part = Part(f"{side}-{node}", frozenset({f"/dev/{node}"}), replica=False)
            offered.setdefault(f"acme.dev/{side}", []).append(part)
        return offered

    def plan(self):
        """Return the device ids by resource that the node must advertise in the end."""
        result = {}
        for resource, parts in self.whole().items():
            count = self.replicas.get(resource, 1)
            for part in parts:
                ids = [part.base] if count == 1 else [f"{part.base}::{each}" for each in range(count)]
                self.parts |= {id_: Part(part.base, part.pieces, replica=count > 1) for id_ in ids}
                result.setdefault(resource, set()).update(ids)
        return result

    def in_words(self):
        """Return the plan in one line, for logs."""
        return ", ".join(f"{resource} [{' '.join(sorted(ids))}]" for resource, ids in sorted(self.plan().items()))

    def text(self):
        """Return the text of the configuration file."""
        lines = ["version: v1", "flags: {migStrategy: mixed}", "devices:"]
        profiles = ", ".join(f"{name}: {{slices: {size}, memory: {size}Gi}}" for name, size in SIZES.items())
        partitioning = f"{{slices: {SLICES}, profiles: {{{profiles}}}}}"
        virtual = f"{{count: {len(self.layouts)}, memory: {SLICES}Gi, partitioning: {partitioning}}}"
        cuts = ", ".join(f'"{i}": [{", ".join(layout)}]' for i, layout in enumerate(self.layouts) if layout)
        cut = f", partitions: {{{cuts}}}" if cuts else ""
        lines.append(f"- {{name: npu, resource: {self.npus}, virtual: {virtual}{cut}}}")
        if self.boxes:
            lines.append(f"- {{name: box, resource: {self.box}, virtual: {{count: {self.boxes}}}}}")
        for side in sorted(set(self.sides.values())):
            first = "".join(node[0] for node in NODES if self.sides[node] == side)
            lines.append(f'- {{name: {side}, resource: acme.dev/{side}, glob: "/dev/[{first}][ue][lr][lo]"}}')
        shared = [
            f"{{name: {resource}, replicas: {self.replicas[resource]}}}"
            for resource in sorted(self.plan())
            if self.replicas.get(resource, 1) > 1
        ]
        if shared:
            lines.append(f"sharing: {{timeSlicing: {{resources: [{', '.join(shared)}]}}}}")
        return "\n".join(lines) + "\n"

    def overlaps(self, one, other):
        """Whether two ids share hardware, so that two pods must not hold them. Replicas of one device may be shared."""
        a, b = self.parts[one], self.parts[other]
        if a.base == b.base and a.replica and b.replica:
            return one == other
        return bool(a.pieces & b.pieces)
