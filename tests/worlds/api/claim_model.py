"""What of a node's file is for claims and for the Node object, as it is edited, and what shall be published of it."""

import re
from dataclasses import dataclass, field
from pathlib import Path

CORES, CARDS, CELLS = 4, 3, (20, 21)
GATE, GATES = "acme.dev/gate", 2
SLICES = 4
PARTS = {"1x": (1, (0, 1, 2, 3)), "2x": (2, (0, 2))}  # slices, and where a partition may begin
DRIVER, OTHER = "acme.dev", "beam.dev"
CLASSES = {"acme": DRIVER, "beam": OTHER}  # of devices, with the driver that they choose
_CHANGES = ("cores", "cores", "cards", "dynamic", "beams", "label", "labels", "gate", "gate", "plug", "plug")
_PART = re.compile(r"(?P<device>card-\d+)(?:-(?P<profile>\dx)-(?P<start>\d))?")


@dataclass(slots=True)
class ClaimModel:
    """The entries that are advertised to claims, below `root`."""

    root: Path
    cores: int = 3
    cards: int = 1
    dynamic: bool = True
    beams: int = 2
    labelled: int = 1
    labels: bool = True
    gated: bool = False  # whether gates are for claims, or listed by the device plugin
    plugged: set[int] = field(default_factory=lambda: set(CELLS))

    def change(self, what: int, one: int) -> str:
        """More devices or fewer, cut otherwise, other labels; says what."""
        chosen = _CHANGES[what % len(_CHANGES)]
        match chosen:
            case "cores":
                self.cores = one % (CORES + 1)
            case "cards":
                self.cards = one % CARDS
            case "dynamic":
                self.dynamic = not self.dynamic
            case "beams":
                self.beams = one % 3
            case "label":
                self.labelled = one % 3
            case "labels":
                self.labels = not self.labels
            case "gate":
                self.gated = not self.gated
            case "plug":
                self.plug(CELLS[one % len(CELLS)])
        return f"claims: {chosen}"

    def plug(self, number: int) -> None:
        """A cell is there, or no longer."""
        path = self.root / f"host/dev/w{number}"
        if number in self.plugged:
            self.plugged.discard(number)
            path.unlink(missing_ok=True)
        else:
            self.plugged.add(number)
            path.write_text("")

    def build(self) -> None:
        """Let the devices be there."""
        for number in self.plugged:
            (self.root / f"host/dev/w{number}").write_text("")

    # --- the file -----------------------------------------------------------------------------------------------------

    def node(self) -> str:
        """What the file says of the Node."""
        return f"node: {{labels: {str(self.labels).lower()}, conditions: true}}"

    def entries(self) -> list[str]:
        """The entries."""
        claimed = "advertise: [dra]"
        lines = []
        if self.cores:
            label = f', labels: {{acme.dev/cores: "{self.labelled}"}}' if self.labelled else ""
            lines.append(
                f"- {{name: core, resource: acme.dev/core, {claimed}, virtual: {{count: {self.cores}}}{label}, "
                "conditions: [{type: CoreTrouble}]}"
            )
        if self.cards:
            profiles = ", ".join(
                f"{name}: {{slices: {size}, memory: {size}Gi, placements: {list(starts)}}}"
                for name, (size, starts) in PARTS.items()
            )
            cut = f"partitioning: {{slices: {SLICES}, profiles: {{{profiles}}}}}"
            how = ", dra: {partitions: dynamic}" if self.dynamic else ""
            virtual = f"virtual: {{count: {self.cards}, memory: {SLICES}Gi, {cut}}}"
            lines.append(f"- {{name: card, resource: acme.dev/card, {claimed}, {virtual}{how}}}")
        if self.beams:
            lines.append(f"- {{name: beam, resource: {OTHER}/beam, {claimed}, virtual: {{count: {self.beams}}}}}")
        by = "dra" if self.gated else "device-plugin"
        lines.append(f"- {{name: gate, resource: {GATE}, advertise: [{by}], virtual: {{count: {GATES}}}}}")
        lines.append(f'- {{name: cell, resource: acme.dev/cell, {claimed}, glob: "/dev/w2[01]"}}')
        return lines

    # --- what follows from it -----------------------------------------------------------------------------------------

    def published(self) -> dict[str, frozenset[str]]:
        """The names of the devices of each driver that shall be in the node's slices."""
        names = [f"core-{number}" for number in range(self.cores)]
        for number in range(self.cards):
            names.append(f"card-{number}")
            if self.dynamic:
                names += [f"card-{number}-{name}-{start}" for name, (_, starts) in PARTS.items() for start in starts]
        names += [f"gate-{number}" for number in range(GATES)] if self.gated else []
        names += [f"cell-w{number}" for number in self.plugged]
        found = {DRIVER: frozenset(names), OTHER: frozenset(f"beam-{number}" for number in range(self.beams))}
        return {driver: devices for driver, devices in found.items() if devices}

    def listed(self) -> dict[str, list[str]]:
        """The ids that the device plugin shall list, by resource."""
        return {} if self.gated else {GATE: [f"gate-{number}" for number in range(GATES)]}

    def wanted_labels(self) -> dict[str, str]:
        """The labels of the Node that follow from the entries."""
        if not (self.labels and self.cores and self.labelled):
            return {}
        return {"acme.dev/cores": str(self.labelled)}


def of_driver(driver: str) -> str:
    """The selector for a driver's devices."""
    return f"device.driver == '{driver}'"


def pieces(driver: str, device: str) -> frozenset[str]:
    """The hardware behind a device's name: two names with a piece in common must not be given to two claims."""
    part = _PART.fullmatch(device)
    if part is None:
        return frozenset({f"{driver}/{device}"})
    size, start = (PARTS[part["profile"]][0], int(part["start"])) if part["profile"] else (SLICES, 0)
    return frozenset(f"{driver}/{part['device']}/{each}" for each in range(start, start + size))
