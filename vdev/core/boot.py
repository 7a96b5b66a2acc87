"""Whether the kubelet may start: what the node had before its restart is there again, or was waited for long enough.

A kubelet that starts admits the pods of its node once. A pod whose device is not listed as Healthy at that moment fails
for good, so an agent that can start before the kubelet holds it back until the devices are there: USB devices come
seconds after the rest of the machine.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from .inventory.resources import Inventory
from .model.device import RawDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """What is known at a moment of the start.

    `served`: the devices are listed to all who ask. `kubelet`: one has started and listens. `absent`: ids of hardware
    that was listed before and is not there, or not well. `waits_for`: what keeps this process from serving at all, in
    words.
    """

    served: bool
    kubelet: bool = False
    absent: tuple[str, ...] = ()
    waits_for: str = ""


def absent(listed: Inventory, found: Iterable[RawDevice], ailing: Collection[str] = ()) -> tuple[str, ...]:
    """The ids of hardware that an earlier process listed and that cannot be handed out now, in order.

    Hardware is compared and not what was made of it: a new layout, sharing or name is no reason to wait. `ailing` are
    ids of devices that are there and do not work.
    """
    well = {raw.id for raw in found if raw.health.healthy}.difference(ailing)
    return tuple(sorted(listed.raws - well))


def may_start(boot: Boot, *, waited: float, patience: float) -> bool:
    """Whether the kubelet need not wait any longer; `waited` and `patience` are seconds since this process started.

    It never waits where it must come first, as when its own directory is to be made, nor where it runs already.
    """
    if boot.waits_for:
        return True
    return boot.served and (boot.kubelet or not boot.absent or waited >= patience)
