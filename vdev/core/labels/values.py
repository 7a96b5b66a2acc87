"""What labels are made from beside the devices, and what they come to; makers are imported where labels are wanted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.device import EMPTY
from ..model.problem import Problem


@dataclass(frozen=True, slots=True)
class Machine:
    """What labels tell of the machine: its model (empty: unknown), and the Unix time of the start, None for no time."""

    product: str = ""
    started_at: int | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels by key, sorted, and what is wrong or doubtful about them."""

    values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    problems: tuple[Problem, ...] = ()


NO_LABELS = Labels()
