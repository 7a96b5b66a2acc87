"""The SR-IOV network device plugin: its pools of virtual functions and other PCI devices.

Facts: 40b6f50 of 2026-06-25, `pkg/types`, `pkg/netdevice`, `pkg/resources`. A selector becomes an entry for each thing
that is handed out in another way: functions bound to VFIO have another node than those of UIO, and most have none.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .. import config
from ..errors import ConfigError
from .draft import Draft, ImportSource, Wishes, is_true, listed, mapping

_PREFIX = "intel.com"
_VFIO, _UIO = ("vfio-pci",), ("uio_pci_generic", "igb_uio")
_CLASSES = {"netDevice": "0x02*", "accelerator": "0x12*"}
_LINKS = {"ether": "0x0200*", "infiniband": "0x0207*"}
# What is read of each; anything else is named.
_POOL_KEYS = ("resourceName", "resourcePrefix", "deviceType", "excludeTopology", "selectors", "additionalInfo")
_UNKNOWN_TO_SYSFS = ("ddpProfiles", "pKeys", "vdpaType", "auxTypes")
_SELECTOR_KEYS = (
    *("vendors", "devices", "drivers", "pciAddresses", "acpiIndexes", "pfNames", "rootDevices", "linkTypes"),
    *("isRdma", "needVhostNet"),
    *_UNKNOWN_TO_SYSFS,
)
_MAX_FUNCTIONS = 1024
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")

Match = dict[str, Any]


def recognises(content: Any) -> bool:
    """Whether it has a list of pools."""
    pools = mapping(content).get("resourceList")
    return isinstance(pools, list) and all("resourceName" in mapping(each) for each in pools)


def drafts(found: Sequence[ImportSource], wishes: Wishes) -> list[Draft]:
    """One file for each list, since a node has one."""
    return [_draft(source, wishes) for source in found]


def _draft(source: ImportSource, wishes: Wishes) -> Draft:
    draft = Draft("Made by vdev import of a configuration of the SR-IOV network device plugin.", source.key)
    draft.unread("", source.content, ("resourceList",))
    for place, pool in enumerate(source.content["resourceList"]):
        _pool(draft, mapping(pool), f"resourceList[{place}]", wishes.domain or _PREFIX)
    if draft.devices:
        draft.told(
            "", "there, an interface with the default route is left out, and one whose link is down is Unhealthy"
        )
    return draft


def _pool(draft: Draft, pool: dict[str, Any], where: str, prefix: str) -> None:
    draft.unread(where, pool, _POOL_KEYS)
    name, domain = str(pool.get("resourceName")), str(pool.get("resourcePrefix") or prefix)
    kind = str(pool.get("deviceType") or "netDevice")
    if kind not in _CLASSES:
        draft.lost(
            f"{where}.deviceType", f"{kind} devices of {domain}/{name} are no PCI devices, and have no source here"
        )
        return
    variable = f"PCIDEVICE_{domain}_{name}".replace(".", "_").replace("-", "_").upper()
    if pool.get("additionalInfo"):
        draft.lost(
            f"{where}.additionalInfo",
            f"{variable}_INFO is JSON about all devices of a container, which no template makes",
        )
    for number, selector in enumerate(_selectors(draft, pool.get("selectors"), where)):
        at = f"{where}.selectors[{number}]"
        draft.unread(at, selector, _SELECTOR_KEYS)
        if (why := _cannot(selector)) is not None:
            draft.lost(f"{at}.{why}", f"the devices of {domain}/{name} that it selects cannot be told apart by sysfs")
            continue
        matches = list(_matches(draft, selector, at, kind))
        rdma = ["infiniband_verbs", "infiniband_mad"] if is_true(selector.get("isRdma")) else []
        for match, children in [(each, kids) for each in matches for each, kids in _by_driver(each, selector)]:
            body = {"name": draft.entry_name(name.replace("_", "-")), "resource": f"{domain}/{name}"}
            container = {"env": {variable: "{attributes.name}"}, **_nodes(selector)}
            draft.entry(body | _sysfs(pool, match, [*children, *rdma]) | {"container": container})


def _selectors(draft: Draft, given: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(given, str):
        try:
            given = next(iter(config.trees(given, "selectors")), None)
        except ConfigError:
            draft.lost(f"{where}.selectors", "cannot be read")
    return [mapping(each) for each in (given if isinstance(given, list) else [given])]


def _cannot(selector: dict[str, Any]) -> str | None:
    """The condition that sysfs does not tell of."""
    return next((key for key in _UNKNOWN_TO_SYSFS if selector.get(key)), None)


def _texts(value: Any) -> list[str]:
    return [str(each) for each in listed(value) if isinstance(each, str)]


def _sysfs(pool: dict[str, Any], match: Match, children: Sequence[str]) -> dict[str, Any]:
    sysfs: dict[str, Any] = {"bus": "pci", "match": match}
    if children:
        sysfs["children"] = list(children)
    body: dict[str, Any] = {"sysfs": sysfs}
    if is_true(pool.get("excludeTopology")):
        body["excludeTopology"] = True
    return body


def _matches(draft: Draft, selector: dict[str, Any], where: str, kind: str) -> Iterator[Match]:
    """The conditions of a selector; several where one of several physical functions is enough."""
    base: Match = {"class": _CLASSES[kind], **_ids(selector)}
    if kind == "netDevice":
        base["sriov_numvfs"] = {"notIn": ["[1-9]*"]}  # a physical function that is in use as one
    if links := _texts(selector.get("linkTypes")):
        known = [_LINKS[each] for each in links if each in _LINKS]
        if len(known) < len(links):
            draft.told(f"{where}.linkTypes", "sysfs tells link types by the PCI class alone: ether and infiniband")
        base["class"] = {"in": known} if known else base["class"]
    if is_true(selector.get("isRdma")):
        base["infiniband"] = {"exists": True}
    keys = [key for key in ("pfNames", "rootDevices") if _texts(selector.get(key))]
    if len(keys) > 1:
        draft.told(where, "pfNames and rootDevices together are taken as alternatives")
    for parent in [each for key in keys for each in _parents(draft, selector, key, where)] if keys else [{}]:
        yield {**base, **parent}


def _ids(selector: dict[str, Any]) -> Match:
    found: Match = {}
    for key, attribute in (("vendors", "vendor"), ("devices", "device")):
        if ids := _texts(selector.get(key)):
            found[attribute] = {"in": [f"0x{each.lower().removeprefix('0x')}" for each in ids]}
    if addresses := _texts(selector.get("pciAddresses")):
        found["uevent"] = {"in": [f"*PCI_SLOT_NAME={each}*" for each in addresses]}
    if indexes := _texts(selector.get("acpiIndexes")):
        found["acpi_index"] = {"in": indexes}
    return found


def _parents(draft: Draft, selector: dict[str, Any], key: str, where: str) -> Iterator[Match]:
    seen: set[str] = set()
    for place, text in enumerate(_texts(selector.get(key))):
        name, mark, ranges = text.partition("#")
        if name.lower() in seen:
            continue  # the first one counts
        seen.add(name.lower())
        match: Match = {f"physfn/net/{name}": {"exists": True}} if key == "pfNames" else {"physfn": name}
        if mark:
            numbers = _numbers(ranges)
            if numbers is None:
                draft.lost(
                    f"{where}.{key}[{place}]", f"the range {ranges!r} cannot be read, so that nothing is selected"
                )
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
    """The conditions for each kind of driver, with the subsystem whose node goes with it."""
    drivers = _texts(selector.get("drivers"))
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
