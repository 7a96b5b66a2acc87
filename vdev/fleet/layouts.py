"""The partition layouts that labels of a Node without a kubelet select. The cluster's pods and claims hold devices."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..dra.pools import Held, claimed_by_name, published_pools
from ..dra.published_devices import NO_POOLS, Pools
from ..model.device import Key, RawDevice
from ..model.spec import Spec
from ..planning import repartition
from ..planning.in_use import Holder, InUse
from ..planning.inventory import arrange
from ..planning.plan import DesiredState
from ..planning.repartition import Progresses, RepartitionView
from ..planning.resources import EMPTY, Inventory


class Layouts:
    """How the devices of a node are partitioned now; `progresses` has the state of each label."""

    def __init__(self, node: str) -> None:
        self.progresses: Progresses = {}
        self._node = node

    def labels_of(self, spec: Spec, labels: Mapping[str, str]) -> tuple[str | None, ...]:
        """The values of the Node's labels about layouts: the chosen layouts, and their states."""
        choices = [entry.choice for entry in spec.on_node(self._node) if entry.choice]
        return tuple(labels.get(name) for each in choices for name in (each.label, each.state_label))

    def look(
        self,
        spec: Spec,
        found: Mapping[str, Sequence[RawDevice]],
        labels: Mapping[str, str],
        *,
        last: DesiredState | None,
        in_use: InUse,
        noted: Mapping[Key, str],
        claimed: Held,
    ) -> tuple[Spec, Inventory]:
        """Return the configuration with the layouts in force, and its inventory; `last` is the last plan.

        `noted` are the devices in annotations of pods. These and the devices of claims show which layouts an earlier
        controller had in force.
        """
        if not any(entry.choice for entry in spec.on_node(self._node)):
            self.progresses = {}
            return spec, arrange(spec, self._node, found)
        before, listed, pools = self.progresses, EMPTY, NO_POOLS
        if last is not None:
            listed, pools = last.advertised, last.pools
        elif noted or claimed:
            before, listed, pools = self._recall(spec, found, labels, noted, claimed)
        view = RepartitionView(
            labels=labels,
            found=found,
            listed=listed,
            in_use=in_use if last else replace(in_use, devices={key: Holder(pod) for key, pod in noted.items()}),
            claimed=claimed_by_name(pools, claimed),
            now=in_use.asked_at,
        )
        known = last.observed.inventory.problems if last else None
        self.progresses, base = repartition.advance(before, spec, self._node, view, known)
        cut = repartition.in_force(spec, self.progresses)
        return cut, arrange(cut, self._node, found) if base is None else base

    def _recall(
        self,
        spec: Spec,
        found: Mapping[str, Sequence[RawDevice]],
        labels: Mapping[str, str],
        noted: Mapping[Key, str],
        claimed: Held,
    ) -> tuple[Progresses, Inventory, Pools]:
        """The layouts in force when pods and claims got their devices, if the present labels choose others."""
        choices = [each.choice for each in spec.on_node(self._node) if each.choice]
        values = dict.fromkeys(name for each in choices for name in each.layouts)
        for value in (None, *values):
            chosen = labels if value is None else {each.label: value for each in choices}
            cut, before = repartition.chosen(spec, self._node, chosen)
            base = arrange(cut, self._node, found)
            pools = published_pools(base.claimable, base.claimable)
            has_noted = all(name in base.resources and key in base.resources[name].by_id for name, key in noted)
            has_claimed = all(
                pools[driver].by_name.keys() >= set(names) for driver, names in claimed.items() if driver in pools
            )
            if has_noted and has_claimed:
                return ({}, EMPTY, NO_POOLS) if value is None else (before, base, pools)
        return {}, EMPTY, NO_POOLS
