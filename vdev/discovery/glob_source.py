"""Devices found by path patterns: the paths are found, checked and grouped, and each group is a device."""

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ..errors import HostError
from ..hostfs import FileInfo, HostRoot
from ..model import names, path_pattern
from ..model.device import HEALTHY, DeviceNode, Health, Mount, RawDevice, facts
from ..model.entry import Entry
from ..model.path_pattern import PathPattern, natural_key
from ..model.sources import GlobItem, GroupBy, NodeKind, PathType
from .device_nodes import Danger, container_path, node_key, nodes_below, numa_of_node
from .found import Candidate, Check, Findings, Found, Numbering


@dataclass(frozen=True, slots=True)
class Match:
    """A usable match of a pattern."""

    path: str
    captures: tuple[str, ...]
    """The text that each wildcard matches."""
    info: FileInfo
    """The file at the path, with links followed."""


@dataclass(frozen=True, slots=True)
class MatchGroup:
    """The matches that make up one device."""

    name: str
    members: Sequence[tuple[GlobItem, Match]]
    """The matches, each with the pattern that found it."""
    lacking: str = ""
    """Why the device is incomplete: a required pattern has no match for it."""


Matches = Sequence[tuple[GlobItem, Sequence[Match]]]
"""Each pattern of the entry with its matches."""


def _by_position(matches: Matches) -> list[MatchGroup]:
    required = [(item, found) for item, found in matches if not item.optional]
    natural = max((len(found) for _, found in required or matches), default=0)
    covered = min((len(found) * item.limit for item, found in required), default=natural)
    groups = []
    for place in range(min(natural, covered)):
        members = [(item, found[place % len(found)]) for item, found in matches if place < len(found) * item.limit]
        groups.append(MatchGroup(str(place), members))
    return groups


def _by_name(matches: Matches) -> list[MatchGroup]:
    required = [(item, found) for item, found in matches if not item.optional]
    leading = [match for _, found in required or matches for match in found]
    length = max((len(match.captures) for match in leading), default=0)
    keys = {match.captures for match in leading if len(match.captures) == length}
    served: Counter[tuple[int, str]] = Counter()
    groups = []
    for key in sorted(keys, key=lambda key: [natural_key(part) for part in key]):
        members: list[tuple[GlobItem, Match]] = []
        name, lacking = "-".join(key), ""
        for place, (item, found) in enumerate(matches):
            fitting = (match for match in found if key[: len(match.captures)] == match.captures)
            member = next((match for match in fitting if served[place, match.path] < item.limit), None)
            if member is not None:
                served[place, member.path] += 1
                members.append((item, member))
            elif not item.optional:
                lacking = lacking or f"nothing matches {item.path} for {name}"
        groups.append(MatchGroup(name, members, lacking))
    return groups


def _together(matches: Matches) -> list[MatchGroup]:
    """One group of all matches; no group if a required pattern has no match."""
    members = [(item, match) for item, found in matches for match in found]
    is_complete = all(found or item.optional for item, found in matches)
    return [MatchGroup("all", members)] if members and is_complete else []


_GROUPED = {
    None: _by_position,
    GroupBy.POSITION: _by_position,
    GroupBy.NAME: _by_name,
    GroupBy.ALL: _together,
}


MAX_LOOKS = 200_000  # directory entries that one scan reads, in one or two seconds; all of /dev has some hundreds
MAX_MATCHES = 50_000  # of one scan; about the longest device list that the kubelet accepts
_OPENING = 10  # the cost of opening a directory, in directory entries


class _TooMany(Exception):
    """Aborts the search for a pattern."""


_NODES = (NodeKind.CHAR, NodeKind.BLOCK)
_LEADS_NOWHERE = Check("exists", "", ok=False)


def discover(entry: Entry, host: HostRoot, *, numbering: Numbering) -> Found:
    findings = Findings(entry)
    scan = _Scan(entry, host, findings)
    matches = [(item, scan.matches(item)) for item in entry.glob]
    groups = _GROUPED[entry.group_by](matches)
    devices = tuple(scan.devices(groups, numbering))
    if not any(found or not item.optional for item, found in matches):
        findings.warn("glob", "matches nothing on this node: none of its optional paths is there")
    used = {(item.path, match.path) for group in groups for item, match in group.members}
    for item, found in matches:
        unused = [match.path for match in found if (item.path, match.path) not in used]
        if unused:
            findings.warn(
                f"{len(unused)} of {len(found)} matches of {item.path}",
                f"are not used, the first is {unused[0]}: no matches of the other patterns belong to them",
                "with limit, one match can serve several devices",
            )
    return findings.with_devices(devices)


class _Scan:
    """Finds the usable matches of patterns, and makes a device from each group of matches.

    A scan is bounded, so that a pattern for the whole machine delays neither reloads nor the shutdown.
    """

    def __init__(self, entry: Entry, host: HostRoot, findings: Findings) -> None:
        self._entry = entry
        self._host = host
        self._findings = findings
        self._all_optional = all(each.optional for each in entry.glob)
        self._danger = None if entry.allow_dangerous else Danger(host)
        self._looks_left = MAX_LOOKS
        self._matches_left = MAX_MATCHES

    def matches(self, item: GlobItem) -> list[Match]:
        """The usable matches of one pattern, in natural order."""
        wanted, watched = path_pattern.parse(item.path), set(self._findings.watch)
        try:
            paths = self._paths(wanted)
        except _TooMany as limit:
            self._findings.watch = watched | {wanted.directory}
            message = f"is given up: {limit}"
            self._findings.error(f"glob {item.path}", message, "write a longer path with fewer wildcards")
            return []
        verdicts = {path: self._judge(item, wanted, path) for path in paths}
        if not item.optional and all(verdict == _LEADS_NOWHERE for verdict in verdicts.values()):
            self._findings.warn(f"glob {item.path}", "matches nothing on this node")
        # A node with several names matches only once, preferably under its own name and not that of a link.
        name_of: dict[str, str] = {}
        for path, verdict in verdicts.items():
            if isinstance(verdict, Match):
                own = verdict.info.path
                name_of[own] = own if path == own else name_of.get(own, path)
        found = []
        for path, verdict in verdicts.items():
            if isinstance(verdict, Check):
                check = verdict
            elif (name := name_of[verdict.info.path]) != path:
                check = Check("is not another name of a match", name, ok=False)
            else:
                check = Check(f"matches {item.path}", verdict.info.path, ok=True)
                found.append(verdict)
                if path != verdict.info.path:
                    self._findings.watch.add(posixpath.dirname(verdict.info.path))
            self._findings.candidates.append(Candidate(path, (check,)))
        return found

    def _judge(self, item: GlobItem, wanted: path_pattern.PathPattern, path: str) -> Match | Check:
        """The match of a path, or the condition that the path does not meet."""
        say = self._findings.error if wanted.is_literal else self._findings.warn
        try:
            info = self._host.info(path)
        except HostError as broken:
            self._findings.warn(path, "is left out", str(broken))
            return Check("can be accessed", str(broken), ok=False)
        if info is None:  # a dangling link, or removed since the directory was read
            return _LEADS_NOWHERE
        for excluded in self._entry.exclude:
            if path_pattern.matches_any(path, (excluded,)) or path_pattern.matches_any(info.path, (excluded,)):
                return Check(f"is not excluded by {excluded}", info.path, ok=False)
        kinds = item.kinds or (_NODES if item.type is PathType.DEVICE else tuple(NodeKind))
        # A runtime accepts nodes and directories of nodes as devices, and any path as a mount.
        is_fit = item.type is PathType.MOUNT or info.is_device or info.kind is NodeKind.DIRECTORY
        if info.kind not in kinds or not is_fit:
            # Directories are not reported: `/dev/input/*` is not meant to match its directory `by-id`.
            is_directory = info.kind is NodeKind.DIRECTORY
            if item.type is PathType.DEVICE and not info.is_device and (wanted.is_literal or not is_directory):
                called = "plain file" if info.kind is NodeKind.FILE else info.kind
                more = ", or kinds: [directory] for all nodes in it" if is_directory else ""
                say(path, f"is not a device node ({called})", f"use type: mount{more}")
            return Check(f"is {' or '.join(kinds)}", info.kind, ok=False)
        danger = self._danger.of(info) if self._danger is not None else ""
        if danger:
            say(path, f"is not handed out because it {danger}", "allowDangerous: true permits it")
            return Check("is not dangerous", danger, ok=False)
        return Match(path, wanted.captures(path) or (), info)

    def _paths(self, wanted: PathPattern) -> list[str]:
        """The existing paths that match, in natural order; a link at the end is not followed.

        Linked directories are entered if the pattern names them, but not by `**`, which might never end.
        """
        found = [wanted.directory]
        for place, component in enumerate(wanted.below):
            below: dict[str, None] = {}  # in the order in which they are found
            for directory in found:
                below |= dict.fromkeys(self._step(directory, component, is_last=place == len(wanted.below) - 1))
            found = list(below)
        self._matches_left -= len(found)
        if self._matches_left < 0:
            raise _TooMany(f"more than {MAX_MATCHES} matches")
        return sorted(found, key=path_pattern.natural_key)

    def _step(self, directory: str, component: str, *, is_last: bool) -> Iterator[str]:
        if component == path_pattern.RECURSIVE:
            yield from self._below(directory, with_files=is_last)
        elif path_pattern.has_wildcard(component):
            for name, _ in self._entries(directory):
                if path_pattern.component_matches(component, name):
                    yield posixpath.join(directory, name)
        elif not is_last:
            yield posixpath.join(directory, component)
        else:
            self._findings.watch.add(directory)
            path = posixpath.join(directory, component)
            if self._host.exists(path) or self._host.link(path):  # also finds a dangling link
                yield path

    def _below(self, directory: str, *, with_files: bool) -> Iterator[str]:
        """The directory and all directories below it; with files, all entries below it instead."""
        if not with_files:
            yield directory
        for name, is_directory in self._entries(directory):
            if not name.startswith("."):
                path = posixpath.join(directory, name)
                if with_files:
                    yield path
                if is_directory:
                    yield from self._below(path, with_files=with_files)

    def _entries(self, directory: str) -> list[tuple[str, bool]]:
        self._findings.watch.add(directory)
        try:
            entries = list(islice(self._host.entries(directory), self._looks_left + 1))
        except HostError as broken:
            self._findings.warn(directory, "is left out", str(broken))
            entries = []
        self._looks_left -= _OPENING + len(entries)
        if self._looks_left < 0:
            self._looks_left = 0  # the other patterns are given up at their first directory
            raise _TooMany(f"it would have to look at more than {MAX_LOOKS} directory entries")
        usable = []
        for name, is_directory in entries:
            if name.isprintable():
                usable.append((name, is_directory))
            else:
                path = posixpath.join(directory, name)
                self._findings.warn(repr(path), "is left out: its name has control characters or is not UTF-8")
        return usable

    # --- devices ------------------------------------------------------------------------------------------------------

    def devices(self, groups: Sequence[MatchGroup], numbering: Numbering) -> Iterator[RawDevice]:
        """A device for each group that can be named, in the order of the groups.

        It is named after its first required match, or else after its group, so its id does not depend on other matches.
        """
        leading = next((item for item in self._entry.glob if not item.optional), self._entry.glob[0])
        uses: dict[str, int] = {}
        named: dict[str, MatchGroup] = {}
        for each in groups:
            if self._all_optional or self._entry.group_by is GroupBy.ALL:
                identity = each.name
            else:
                match = next((match for item, match in each.members if item is leading), None)
                if match is None:
                    continue
                # The path below the last directory that the pattern names without wildcards.
                below = match.path.removeprefix(path_pattern.parse(leading.path).directory)
                identity = below.strip("/") or match.path.strip("/")
            use = uses[identity] = uses.get(identity, -1) + 1
            device_id = names.device_id(self._entry.name, f"{identity}.{use}" if use else identity)
            if device_id in named:  # another file is named `<identity>.<use>`
                device_id = names.device_id(self._entry.name, f"{identity}:{use}")
            named[device_id] = each
        for index, (device_id, each) in zip(numbering.assign(named), named.items(), strict=True):
            yield self._device(device_id, index, each)

    def _device(self, device_id: str, index: int, group: MatchGroup) -> RawDevice:
        members = group.members
        numa = {numa_of_node(self._host, match.info) for _, match in members}
        bare = RawDevice(
            id=device_id,
            entry=self._entry.name,
            index=index,
            numa=tuple(sorted(node for node in numa if node is not None)),
            attributes=_attributes(members[0][1]),
            paths=tuple(match.path for _, match in members),
        )
        nodes: list[DeviceNode] = []
        mounts: list[Mount] = []
        keys: list[tuple[GlobItem, str]] = []
        lacking = group.lacking
        for item, match in members:
            one = replace(bare, attributes=_attributes(match), paths=(match.path,))
            values = facts(one, self._entry.resource_of(bare))
            inside = container_path(item.container_path, match.path, values)
            if match.info.is_device:
                keys.append((item, node_key(match.info)))
            if item.type is PathType.MOUNT:
                mounts.append(Mount(match.path, inside, bool(item.read_only)))
            elif match.info.kind is NodeKind.DIRECTORY:
                self._findings.watch.add(match.info.path)
                below, reason = self._nodes_in(match.info.path)
                keys += [(item, node_key(info)) for _, info in below]
                nodes += [
                    DeviceNode(info.path, inside + path.removeprefix(match.info.path), item.permissions or "rw")
                    for path, info in below
                ]
                lacking = lacking or ("" if item.optional else reason)
            else:
                nodes.append(DeviceNode(match.info.path, inside, item.permissions or "rw"))
        if not (nodes or mounts):  # only optional directories
            lacking = lacking or "none of its directories has a device node"
        health = Health(healthy=False, reason=lacking) if lacking else HEALTHY
        # Nodes of optional patterns, and of patterns with a limit, may be shared. Of the others, those of the first
        # pattern identify the device. If every pattern is optional, all count as required.
        of_all = [item for item, _ in keys] if self._all_optional else self._entry.glob
        alone = [item for item in of_all if item.limit == 1 and (self._all_optional or not item.optional)]
        owns = tuple(dict.fromkeys(key for item, key in keys if item in alone[:1]))
        uses = tuple(dict.fromkeys(key for item, key in keys if item in alone[1:] and key not in owns))
        return replace(bare, nodes=tuple(nodes), mounts=tuple(mounts), health=health, owns=owns, uses=uses)

    def _nodes_in(self, directory: str) -> tuple[list[tuple[str, FileInfo]], str]:
        """The device nodes in a directory, and why there are none."""
        try:
            below = list(nodes_below(self._host, directory))
        except HostError as broken:
            return [], str(broken)
        return below, "" if below else f"{directory} has no device node"


def _attributes(match: Match) -> dict[str, str]:
    """Values for templates: the name, the name of a link's target, the texts of wildcards, and the path below /dev."""
    return {
        "base": posixpath.basename(match.path),
        "target": posixpath.basename(match.info.path),
        "match": "-".join(match.captures),
        "below": match.path.removeprefix("/dev/").removeprefix("/"),
    }
