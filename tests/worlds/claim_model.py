"""The entries for claims in a node's file, their edits, and the devices that must be published."""

import re
from dataclasses import dataclass

CORES, CARDS = 4, 3
GATE, GATES = "acme.dev/gate", 2
SLICES = 4
PARTS = {"1x": (1, (0, 1, 2, 3)), "2x": (2, (0, 2))}  # slices, and the possible first slices
DRIVER = "acme.dev"
_CHANGES = ("cores", "cores", "cards", "dynamic", "gate", "gate")
_PART = re.compile(r"(?P<device>card-\d+)(?:-(?P<profile>\dx)-(?P<start>\d))?")


@dataclass(slots=True)
class ClaimModel:
    """The entries that are advertised for claims. Gates are for claims, or listed by the device plugin."""

    cores: int = 3
    cards: int = 1
    dynamic: bool = True
    gated: bool = False

    def change(self, what: int, one: int) -> str:
        """Change the number of devices, their partitions, or how they are advertised. Returns what was done."""
        chosen = _CHANGES[what % len(_CHANGES)]
        match chosen:
            case "cores":
                self.cores = one % (CORES + 1)
            case "cards":
                self.cards = one % CARDS
            case "dynamic":
                self.dynamic = not self.dynamic
            case "gate":
                self.gated = not self.gated
        return f"claims: {chosen}"

    def entries(self) -> list[str]:
        claimed = "advertise: [dra]"
        lines = []
        if self.cores:
            lines.append(f"- {{name: core, resource: acme.dev/core, {claimed}, virtual: {{count: {self.cores}}}}}")
        if self.cards:
            profiles = ", ".join(
                f"{name}: {{slices: {size}, memory: {size}Gi, placements: {list(starts)}}}"
                for name, (size, starts) in PARTS.items()
            )
            cut = f"partitioning: {{slices: {SLICES}, profiles: {{{profiles}}}}}"
            how = ", dra: {partitions: dynamic}" if self.dynamic else ""
            virtual = f"virtual: {{count: {self.cards}, memory: {SLICES}Gi, {cut}}}"
            lines.append(f"- {{name: card, resource: acme.dev/card, {claimed}, {virtual}{how}}}")
        by = "dra" if self.gated else "device-plugin"
        lines.append(f"- {{name: gate, resource: {GATE}, advertise: [{by}], virtual: {{count: {GATES}}}}}")
        return lines

    def published(self) -> set[str]:
        """The names of the devices that must be in the node's slices."""
        names = {f"core-{number}" for number in range(self.cores)}
        for number in range(self.cards):
            names.add(f"card-{number}")
            if self.dynamic:
                names |= {f"card-{number}-{name}-{start}" for name, (_, starts) in PARTS.items() for start in starts}
        return names | ({f"gate-{number}" for number in range(GATES)} if self.gated else set())

    def listed(self) -> dict[str, list[str]]:
        """The ids that the device plugin must list, by resource."""
        return {} if self.gated else {GATE: [f"gate-{number}" for number in range(GATES)]}


def pieces(device: str) -> frozenset[str]:
    """The pieces of hardware of a device. Two claims must not have devices with a common piece."""
    part = _PART.fullmatch(device)
    if part is None:
        return frozenset({device})
    size, start = (PARTS[part["profile"]][0], int(part["start"])) if part["profile"] else (SLICES, 0)
    return frozenset(f"{part['device']}/{each}" for each in range(start, start + size))
