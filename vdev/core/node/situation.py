"""What an agent knows of itself beside the plan, and Events tell: its configuration, its registrations, its drills."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.faults.fault_effects import NodeEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """At one moment. `applied` and `refused` count readings of the configuration, `reading` says what the last came to.

    `unregistered` has the resources that the kubelet should know for some time and does not, and why; `drills` the
    fault rules in force, and what each does; `announced` counts how often rules said what they have to say.
    """

    applied: int = 0
    refused: int = 0
    reading: str = ""
    unregistered: Mapping[str, str] = field(default_factory=dict)
    drills: Mapping[str, str] = field(default_factory=dict)
    announced: Mapping[NodeEvent, int] = field(default_factory=dict)


NOTHING = Situation()
