"""The SR-IOV network device plugin: its pools of virtual functions and other PCI devices.

Source: 40b6f50 of 2026-06-25, `pkg/types`, `pkg/netdevice`, `pkg/resources`. A selector becomes an entry for each kind
of driver, because functions with VFIO, with UIO and with other drivers have different device nodes, or none.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .draft import Draft, keys
from .sources import ImportOptions, ImportSource, is_true, mapping, texts, trees

TITLE = "the SR-IOV network device plugin"
_PREFIX = "intel.com"
_VFIO, _UIO = ("vfio-pci",), ("uio_pci_generic", "igb_uio")
_CLASSES = {"netDevice": "0x02*", "accelerator": "0x12*"}
_LINKS = {"ether": "0x0200*", "infiniband": "0x0207*"}
_NOT_IN_SYSFS = ("ddpProfiles", "pKeys", "vdpaType", "auxTypes")
_SELECTOR = keys(
    *("vendors", "devices", "drivers", "pciAddresses", "acpiIndexes", "pfNames", "rootDevices", "linkTypes"),
    *("isRdma", "needVhostNet"),
    *_NOT_IN_SYSFS,
)
_POOL = keys("resourceName", "resourcePrefix", "deviceType", "excludeTopology", "selectors", "additionalInfo")
_MAX_FUNCTIONS = 1024
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")

Match = dict[str, Any]


def recognizes(content: Any) -> bool:
    """Whether it has a list of pools."""
    pools = mapping(content).get("resourceList")
    return isinstance(pools, list) and all("resourceName" in mapping(each) for each in pools)


def drafts(found: Sequence[ImportSource], options: ImportOptions) -> list[Draft]:
    """One file for each list, because a node has one list."""
    return [_draft(source, options) for source in found]


def _draft(source: ImportSource, options: ImportOptions) -> Draft:
    draft = Draft("Made by vdev import of a configuration of the SR-IOV network device plugin.", source.key)
    draft.name_unread(source.content, keys(resourceList=_POOL))
    for place, pool in enumerate(source.content["resourceList"]):
        _pool(draft, mapping(pool), f"resourceList[{place}]", options.domain or _PREFIX)
    if draft.devices:
        draft.note(
            "", "the plugin leaves out interfaces with the default route, and reports those without a link as Unhealthy"
        )
    return draft


def _pool(draft: Draft, pool: dict[str, Any], where: str, prefix: str) -> None:
    name, domain = str(pool.get("resourceName")), str(pool.get("resourcePrefix") or prefix)
    kind = str(pool.get("deviceType") or "netDevice")
    if kind not in _CLASSES:
        draft.omit(
            f"{where}.deviceType", f"{kind} devices of {domain}/{name} are not PCI devices; vdev has no source for them"
        )
        return
    variable = f"PCIDEVICE_{domain}_{name}".replace(".", "_").replace("-", "_").upper()
    if pool.get("additionalInfo"):
        draft.omit(
            f"{where}.additionalInfo",
            f"{variable}_INFO is JSON about all devices of a container, which templates cannot make",
        )
    for number, selector in enumerate(_selectors(draft, pool.get("selectors"), where)):
        at = f"{where}.selectors[{number}]"
        draft.name_unread(selector, _SELECTOR, at)
        if (key := next((key for key in _NOT_IN_SYSFS if selector.get(key)), None)) is not None:
            draft.omit(f"{at}.{key}", f"sysfs does not show this property, so {domain}/{name} lacks these devices")
            continue
        matches = list(_matches(draft, selector, at, kind))
        rdma = ["infiniband_verbs", "infiniband_mad"] if is_true(selector.get("isRdma")) else []
        for match, children in [(each, kids) for each in matches for each, kids in _by_driver(each, selector)]:
            body = {"name": draft.entry_name(name.replace("_", "-")), "resource": f"{domain}/{name}"}
            container = {"env": {variable: "{attributes.name}"}, **_nodes(selector)}
            draft.entry(body | _sysfs(pool, match, [*children, *rdma]) | {"container": container})


def _selectors(draft: Draft, given: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(given, str):
        found = trees(given, "selectors")
        if not found:
            draft.omit(f"{where}.selectors", "cannot be read")
        given = next(iter(found), None)
    return [mapping(each) for each in (given if isinstance(given, list) else [given])]


def _sysfs(pool: dict[str, Any], match: Match, children: Sequence[str]) -> dict[str, Any]:
    sysfs: dict[str, Any] = {"bus": "pci", "match": match}
    if children:
        sysfs["children"] = list(children)
    body: dict[str, Any] = {"sysfs": sysfs}
    if is_true(pool.get("excludeTopology")):
        body["excludeTopology"] = True
    return body


def _matches(draft: Draft, selector: dict[str, Any], where: str, kind: str) -> Iterator[Match]:
    """The conditions of a selector: one mapping for each physical function that it names."""
    base: Match = {"class": _CLASSES[kind], **_ids(selector)}
    if kind == "netDevice":
        base["sriov_numvfs"] = {"notIn": ["[1-9]*"]}  # a physical function with virtual functions
    if links := texts(selector.get("linkTypes")):
        known = [_LINKS[each] for each in links if each in _LINKS]
        if len(known) < len(links):
            draft.note(
                f"{where}.linkTypes",
                "vdev distinguishes link types by the PCI class, which knows only ether and infiniband",
            )
        base["class"] = {"in": known} if known else base["class"]
    if is_true(selector.get("isRdma")):
        base["infiniband"] = {"exists": True}
    keys = [key for key in ("pfNames", "rootDevices") if texts(selector.get(key))]
    if len(keys) > 1:
        draft.note(where, "pfNames and rootDevices together are taken as alternatives")
    for parent in [each for key in keys for each in _parents(draft, selector, key, where)] if keys else [{}]:
        yield {**base, **parent}


def _ids(selector: dict[str, Any]) -> Match:
    found: Match = {}
    for key, attribute in (("vendors", "vendor"), ("devices", "device")):
        if ids := texts(selector.get(key)):
            found[attribute] = {"in": [f"0x{each.lower().removeprefix('0x')}" for each in ids]}
    if addresses := texts(selector.get("pciAddresses")):
        found["uevent"] = {"in": [f"*PCI_SLOT_NAME={each}*" for each in addresses]}
    if indexes := texts(selector.get("acpiIndexes")):
        found["acpi_index"] = {"in": indexes}
    return found


def _parents(draft: Draft, selector: dict[str, Any], key: str, where: str) -> Iterator[Match]:
    seen: set[str] = set()
    for place, text in enumerate(texts(selector.get(key))):
        name, mark, ranges = text.partition("#")
        if name.lower() in seen:
            continue  # the plugin uses the first one
        seen.add(name.lower())
        match: Match = {f"physfn/net/{name}": {"exists": True}} if key == "pfNames" else {"physfn": name}
        if mark:
            numbers = _numbers(ranges)
            if numbers is None:
                draft.omit(f"{where}.{key}[{place}]", f"the range {ranges!r} cannot be parsed, so nothing is selected")
                continue
            match["virtfn"] = {"in": [str(each) for each in numbers]}
        yield match


def _numbers(text: str) -> list[int] | None:
    found: list[int] = []
    for part in text.split(","):
        hit = _RANGE.fullmatch(part)
        if hit is None:
            return None
        first, last = int(hit[1]), int(hit[2] or hit[1])
        found += range(first, min(last, _MAX_FUNCTIONS) + 1)
    return found or None


def _by_driver(match: Match, selector: dict[str, Any]) -> Iterator[tuple[Match, list[str]]]:
    """The conditions for each kind of driver, with the subsystems whose device nodes it needs."""
    drivers = texts(selector.get("drivers"))
    if not drivers:
        yield {**match, "driver": "vfio-pci"}, ["vfio"]
        yield {**match, "driver": {"in": list(_UIO)}}, ["uio"]
        yield {**match, "driver": {"notIn": [*_VFIO, *_UIO]}}, []
        return
    kinds = ((_VFIO, ["vfio"]), (_UIO, ["uio"]))
    for known, children in kinds:
        if own := [each for each in drivers if each in known]:
            yield {**match, "driver": {"in": own}}, children
    if others := [each for each in drivers if each not in (*_VFIO, *_UIO)]:
        yield {**match, "driver": {"in": others}}, []


def _nodes(selector: dict[str, Any]) -> dict[str, Any]:
    nodes = []
    if is_true(selector.get("isRdma")):
        nodes.append({"hostPath": "/dev/infiniband/rdma_cm"})
    if is_true(selector.get("needVhostNet")):
        nodes += [{"hostPath": "/dev/vhost-net"}, {"hostPath": "/dev/net/tun"}]
    return {"deviceNodes": nodes} if nodes else {}
