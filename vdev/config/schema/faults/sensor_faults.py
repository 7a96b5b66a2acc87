"""Faults that only a device's sensors and counters show: heat, and errors that add up."""

from typing import Annotated

from ..scalars import Duration, Whole, between, longer_than_nothing
from ..section import Section
from ..telemetry_block import Number

MAX_TEMPERATURE = 200  # °C


class OverheatFault(Section):
    """The devices become hot, whatever their load; the clocks follow as the temperature passes the model's limits."""

    to: Annotated[Whole, between(1, MAX_TEMPERATURE)] = 105
    """The temperature that they come to, in °C."""
    within: Annotated[Duration, longer_than_nothing(86400, "24h")] = 60.0
    """Time that it takes from the temperature that they have."""


class HardwareErrorsFault(Section):
    """Errors that the devices count by themselves, a minute; at least one of its keys."""

    corrected_ecc: Number = 0.0
    """Errors of the memory that ECC corrects."""
    uncorrected_ecc: Number = 0.0
    """Errors of the memory that it cannot correct."""
    pcie_replays: Number = 0.0
    """Packets that PCI Express sends again."""
    remapped_rows: Number = 0.0
    """Rows of the memory that are taken out of use."""
