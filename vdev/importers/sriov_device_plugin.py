"""The SR-IOV network device plugin: its pools of virtual functions and other PCI devices.

Source: 40b6f50 of 2026-06-25, `pkg/types`, `pkg/netdevice`, `pkg/resources`. A selector becomes an entry for each kind
of driver, because functions with VFIO, with UIO and with other drivers have different device nodes, or none.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .draft import Draft, Item, listed, mapping
from .sources import Form, ImportOptions, trees

_PREFIX = "intel.com"
_CLASSES = {"netDevice": "0x02*", "accelerator": "0x12*"}
_LINKS = {"ether": "0x0200*", "infiniband": "0x0207*"}
_NODES_OF = {"vfio-pci": ["vfio"], "uio_pci_generic": ["uio"], "igb_uio": ["uio"]}
"""The subsystems with a function's device nodes, by driver. Other drivers make no device nodes."""
_NOT_IN_SYSFS = ("ddpProfiles", "pKeys", "vdpaType", "auxTypes")
_ATTRIBUTES = {  # the attribute of sysfs for each key of a selector, and the pattern for a value
    "vendors": ("vendor", "0x{}"),
    "devices": ("device", "0x{}"),
    "pciAddresses": ("uevent", "*PCI_SLOT_NAME={}*"),
    "acpiIndexes": ("acpi_index", "{}"),
}
_MAX_FUNCTIONS = 1024
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")

Match = dict[str, Any]


def _recognizes(content: Any) -> bool:
    pools = mapping(content).get("resourceList")
    return isinstance(pools, list) and all("resourceName" in mapping(each) for each in pools)


def _fill(draft: Draft, content: Any, options: ImportOptions) -> None:
    for pool in Item(draft, content).items("resourceList"):
        _pool(draft, pool, options.domain or _PREFIX)
    if draft.devices:
        skips = "the plugin leaves out interfaces with the default route, and reports those without a link as Unhealthy"
        draft.note("", skips)


FORM = Form(title="the SR-IOV network device plugin", recognizes=_recognizes, fill=_fill)


def _pool(draft: Draft, pool: Item, prefix: str) -> None:
    name, domain = str(pool.value("resourceName")), pool.text("resourcePrefix") or prefix
    resource, kind = f"{domain}/{name}", pool.text("deviceType") or "netDevice"
    if kind not in _CLASSES:
        pool.omit(f"{kind} devices of {resource} are not PCI devices; vdev has no source for them", key="deviceType")
        return
    variable = f"PCIDEVICE_{domain}_{name}".replace(".", "_").replace("-", "_").upper()
    if pool.value("additionalInfo"):
        what = f"{variable}_INFO is JSON about all devices of a container, which templates cannot make"
        draft.omit(pool.at("additionalInfo"), what)
    topology = {"excludeTopology": True} if pool.flag("excludeTopology") else {}
    for selector in _selectors(draft, pool):
        if key := next((key for key in _NOT_IN_SYSFS if selector.value(key)), ""):
            selector.omit(f"sysfs does not show this property, so {resource} lacks these devices", key=key)
            continue
        is_rdma, needs_vhost = selector.flag("isRdma"), selector.flag("needVhostNet")
        nodes = ["/dev/infiniband/rdma_cm"] * is_rdma + ["/dev/vhost-net", "/dev/net/tun"] * needs_vhost
        container: dict[str, Any] = {"env": {variable: "{attributes.name}"}}
        if nodes:
            container["deviceNodes"] = [{"hostPath": node} for node in nodes]
        drivers = selector.texts("drivers")
        for match in _matches(draft, selector, kind, is_rdma=is_rdma):
            for driver, subsystems in _by_driver(drivers):
                children = [*subsystems, *(["infiniband_verbs", "infiniband_mad"] * is_rdma)]
                sysfs = {"bus": "pci", "match": {**match, "driver": driver}}
                sysfs |= {"children": children} if children else {}
                body = {"name": draft.entry_name(name.replace("_", "-")), "resource": resource, "sysfs": sysfs}
                draft.entry({**body, **topology, "container": container})


def _selectors(draft: Draft, pool: Item) -> list[Item]:
    given = pool.value("selectors")
    if isinstance(given, str):
        given = next(iter(trees(given, "selectors")), None)
        if given is None:
            draft.omit(pool.at("selectors"), "cannot be read")
    where = pool.at("selectors")
    if isinstance(given, list):
        return [Item(draft, each, f"{where}[{place}]") for place, each in enumerate(listed(given))]
    return [Item(draft, given, where)]


def _matches(draft: Draft, selector: Item, kind: str, *, is_rdma: bool) -> Iterator[Match]:
    """Yield the conditions of a selector except for drivers: one mapping for each physical function that it names."""
    base: Match = {"class": _CLASSES[kind]}
    for key, (attribute, pattern) in _ATTRIBUTES.items():
        if values := selector.texts(key):
            base[attribute] = {"in": [pattern.format(each.lower().removeprefix("0x")) for each in values]}
    if kind == "netDevice":
        base["sriov_numvfs"] = {"notIn": ["[1-9]*"]}  # a physical function with virtual functions
    if links := selector.texts("linkTypes"):
        known = [_LINKS[each] for each in links if each in _LINKS]
        if len(known) < len(links):
            what = "vdev distinguishes link types by the PCI class, which knows only ether and infiniband"
            draft.note(selector.at("linkTypes"), what)
        base["class"] = {"in": known} if known else base["class"]
    if is_rdma:
        base["infiniband"] = {"exists": True}
    functions = {key: names for key in ("pfNames", "rootDevices") if (names := selector.texts(key))}
    if len(functions) > 1:
        draft.note(selector.where, "pfNames and rootDevices together are taken as alternatives")
    if not functions:
        yield base
    for key, names in functions.items():
        for match in _of_functions(draft, names, selector.at(key), by_name=key == "pfNames"):
            yield base | match


def _of_functions(draft: Draft, names: Sequence[str], where: str, *, by_name: bool) -> Iterator[Match]:
    """Yield conditions on the physical function, by its interface name or its address, such as `eth0#0,2-3`."""
    seen: set[str] = set()
    for place, text in enumerate(names):
        name, mark, ranges = text.partition("#")
        if name.lower() in seen:
            continue  # the plugin uses the first one
        seen.add(name.lower())
        match: Match = {f"physfn/net/{name}": {"exists": True}} if by_name else {"physfn": name}
        if mark:
            hits = [_RANGE.fullmatch(part) for part in ranges.split(",")]
            ends = [(int(hit[1]), min(int(hit[2] or hit[1]), _MAX_FUNCTIONS)) for hit in hits if hit]
            numbers = [str(number) for first, last in ends for number in range(first, last + 1)]
            if None in hits or not numbers:
                draft.omit(f"{where}[{place}]", f"the range {ranges!r} cannot be parsed, so nothing is selected")
                continue
            match["virtfn"] = {"in": numbers}
        yield match


def _by_driver(drivers: Sequence[str]) -> Iterator[tuple[Any, list[str]]]:
    """Yield the conditions on the driver for each kind, with the subsystems whose device nodes it needs."""
    if not drivers:
        yield "vfio-pci", ["vfio"]
        yield {"in": ["uio_pci_generic", "igb_uio"]}, ["uio"]
        yield {"notIn": [*_NODES_OF]}, []
    for subsystems in (["vfio"], ["uio"], []):
        if own := [each for each in drivers if _NODES_OF.get(each, []) == subsystems]:
            yield {"in": own}, subsystems
