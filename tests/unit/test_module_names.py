"""Modules that are called alike are about the same: a name means one thing."""

from collections import defaultdict
from pathlib import Path

import vdev

ROOT = Path(vdev.__file__).parent
SHARED = {
    "__init__": "a package",
    "__main__": "what `python -m` runs",
    "agent": "the agent, and the fixture that has one",
    "amd": "AMD's GPUs: slices, labels, metrics, smi",
    "claims": "ResourceClaims: of a driver, of a fleet",
    "device": "a device, and the command about one",
    "dra": "Dynamic Resource Allocation, and the command about it",
    "entry": "an entry of the file: as written, as compiled",
    "fault_hooks": "where faults on demand reach into: plugin, DRA driver",
    "fleet": "a fleet, and the command that runs one",
    "kinds": "kinds of objects: of a client, of the API server for tests",
    "kubelet": "the embedded kubelet, and the fixture that has one",
    "mig_parted": "mig-parted's layouts: as a file of ours names them, as they are imported",
    "node_labels": "labels of the node: which, and writing them",
    "node_section": "the section `node` of the file: its form, its checks",
    "node_status": "the status of a Node: an agent's part, a kubelet's part",
    "nvidia": "NVIDIA's GPUs: slices, labels, smi",
    "options": "options of a process: for the agent, on the command line",
    "ownership": "owners of fields: of a client, of the API server for tests",
    "plain": "devices of no known maker: slices, metrics",
    "pools": "pools of ResourceSlices: published, scheduled from",
    "program": "running another program",
    "servicer": "gRPC's calls: of a device plugin, of a DRA driver",
    "sources": "where devices come from: as written, as compiled",
    "status": "the agent's status, and the command that shows it",
    "telemetry_block": "the keys `telemetry` of the file: their form, their checks",
}


def test_modules_that_are_called_alike_are_about_the_same():
    """A new twin says here what both are about, or gets another name."""
    found = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        found[path.stem].append(str(path.relative_to(ROOT)))
    assert {} == {name: paths for name, paths in found.items() if len(paths) > 1 and name not in SHARED}
    assert [] == [name for name in SHARED if len(found[name]) < 2 and name != "__main__"]
