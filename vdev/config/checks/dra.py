"""How entries are advertised: keys without effect, and devices that two APIs count."""

from ...core.model.dra import ClaimApi, DraPartitions
from ...core.model.place import KeyPath
from ..report import ProblemReport
from ..schema.devices.entry import Entry


def check_dra(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    """The keys of one entry that are about Dynamic Resource Allocation."""
    for number, api in enumerate(model.advertise):
        if api in model.advertise[:number]:
            report.error((*path, "advertise", number), f"{api} is listed twice")
    if ClaimApi.DRA not in model.advertise:
        if model.dra is not None:
            hint = "set advertise to [dra], or to [device-plugin, dra]"
            report.key_error((*path, "dra"), f"{model.name} is not advertised by dra, so dra has no effect", hint)
        return
    if "{" in model.resource:
        hint = "give the entry a resource without placeholders, or advertise it by device-plugin alone"
        report.error((*path, "resource"), "dra knows no resources with placeholders in their name", hint)
    if ClaimApi.DEVICE_PLUGIN in model.advertise:
        message = (
            f"the devices of {model.name} are counted twice: the device plugin and dra each give them out without "
            f"knowing of the other; a pod that asks for {model.resource} as an extended resource is served by the "
            "device plugin, which wins on every node where it has a healthy device"
        )
        hint = "advertise them in one way where pods must not share them"
        report.warning((*path, "advertise"), message, hint)
    elif model.partitions and model.dra and model.dra.partitions is DraPartitions.DYNAMIC:
        message = f"the partitions of {model.name} have no effect: dra.partitions is dynamic, so claims cut the devices"
        report.warning((*path, "partitions"), message, "take them out, or set dra.partitions to static")
