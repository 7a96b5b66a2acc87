"""Where NVIDIA's own plugin would ignore what the file says: true of the file, and wrong with none of it.

Facts: NVIDIA/k8s-device-plugin v0.20.0 takes `rename`, `devices` and `resources` out of every file that it reads.
"""

from collections.abc import Iterator

from ...core.model.place import KeyPath
from ...core.model.problem import Problem, Severity
from ..document.loader import Document
from ..document.position import problem_at
from ..schema import config_file
from ..validation import Validated

_IGNORES = "NVIDIA's own plugin ignores"


def notices(validated: Validated, document: Document) -> tuple[Problem, ...]:
    """A notice for each key of an NVIDIA file that says something of NVIDIA's resources which only vdev does."""

    def at(path: KeyPath, message: str) -> Problem:
        return problem_at(document.key_place(path), path, message, severity=Severity.NOTICE)

    sharing = validated.file.sharing
    found: list[Problem] = []
    for key, block in (("timeSlicing", sharing.time_slicing), ("mps", sharing.mps)):
        if block is None:
            continue
        for path, item in validated.items(("sharing", key, "resources"), block.resources):
            if item.is_nvidias:
                found += (at((*path, each), f"{_IGNORES} {said}") for each, said in _of_item(item, block))
    for kind, patterns in (("gpus", validated.file.resources.gpus), ("mig", validated.file.resources.mig)):
        if patterns:
            found.append(at(("resources", kind), f"{_IGNORES} resources.{kind} and keeps its names"))
    return tuple(each for each in found if document.is_for_nvidia(each.path))


def _of_item(item: config_file.SharedItem, block: config_file.TimeSlicing) -> Iterator[tuple[str, str]]:
    default = f"{item.name}.shared" if block.rename_by_default else item.name
    if item.rename and item.rename != default:
        yield "rename", f"rename: its replicas are {default}"
    if item.devices is not None:
        yield "devices", f"devices: it shares every device of {item.name}"
