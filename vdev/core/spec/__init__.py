"""What the configuration says, after validation: the core's view of the file, free of YAML and pydantic.

`config.compile.entry_spec` makes these values; discovery reads the sources, `inventory` the rest. `where` fields name
the place in the file, for problems that only the node can tell.
"""

# ruff: noqa: F401 - the face of the package: what is imported here is for others
# mypy: implicit-reexport

from .container import ContainerSpec, MountTemplate, NodeTemplate
from .entry import EntrySpec
from .flags import AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, Flags, MigStrategy
from .fleet import AT_ONCE, NO_FLEET, ChosenNodes, Delays, FleetSpec, MadeNodes, NodeTaint
from .health_and_actions import PRE_START_LIMIT, ActionKind, ActionSpec, HealthSpec, OnFailure, Probe
from .node_outputs import ConditionSpec, LabelOutput, NodeSpec, TrueWhen
from .sources import (
    Condition,
    GlobPath,
    GlobSource,
    GroupBy,
    NodeKind,
    Operator,
    PathType,
    Source,
    SysfsSource,
    UsbGroup,
    UsbSource,
    VirtualSource,
)
from .whole import NamePattern, SharedResource, SharingKind, SharingSpec, Spec
