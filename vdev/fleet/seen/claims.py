"""The allocated ResourceClaims: which devices they have, node by node, and for which pods.

A pool is called as its node. A claim that is allocated and that no pod has reserved holds its devices all the same.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...core.retention.holders import Use
from ...kube import metadata_of

Document = Mapping[str, Any]


class SeenClaims:
    """`devices` are the names of allocated devices by node and driver; `on_node` is told of each change."""

    def __init__(self, on_node: Callable[[str], None]) -> None:
        self.devices: dict[str, dict[str, frozenset[str]]] = {}
        self._on_node = on_node
        self._nodes: dict[str, frozenset[str]] = {}  # of each claim, by uid
        self._by_node: dict[str, dict[str, tuple[Use, ...]]] = {}

    def uses(self, node: str) -> tuple[Use, ...]:
        """Which pod has which device of the node."""
        return tuple(use for uses in self._by_node.get(node, {}).values() for use in uses if use.pod)

    def see(self, document: Document) -> None:
        self._note(str(metadata_of(document).get("uid")), _uses(document))

    def see_gone(self, document: Document) -> None:
        self._note(str(metadata_of(document).get("uid")), ())

    def keep_only(self, uids: Collection[str]) -> None:
        for uid in self._nodes.keys() - set(uids):
            self._note(uid, ())

    def _note(self, uid: str, uses: tuple[Use, ...]) -> None:
        before = self._nodes.pop(uid, frozenset())
        nodes = frozenset(use.pool for use in uses)
        if nodes:
            self._nodes[uid] = nodes
        for node in before | nodes:
            mine = tuple(use for use in uses if use.pool == node)
            of_node = self._by_node.setdefault(node, {})
            if of_node.get(uid, ()) == mine:
                continue
            if mine:
                of_node[uid] = mine
            else:
                del of_node[uid]
            self._tell(node)

    def _tell(self, node: str) -> None:
        found: dict[str, set[str]] = {}
        for uses in self._by_node[node].values():
            for use in uses:
                found.setdefault(use.driver, set()).add(use.device)
        self.devices[node] = {driver: frozenset(names) for driver, names in found.items()}
        if not found:
            del self._by_node[node], self.devices[node]
        self._on_node(node)


def _uses(document: Document) -> tuple[Use, ...]:
    """Each device with each pod that has reserved the claim; without a pod where there is none."""
    metadata, status = metadata_of(document), document.get("status") or {}
    namespace, claim = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    pods = [f"{namespace}/{each['name']}" for each in status.get("reservedFor") or () if each.get("resource") == "pods"]
    return tuple(
        Use(pod, "", claim, str(each["driver"]), str(each["pool"]), str(each["device"]))
        for each in results
        for pod in pods or [""]
    )
