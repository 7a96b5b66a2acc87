"""The file of AMD's device-config-manager, its `config.json`: named profiles for the GPUs of a node.

A profile says how many GPUs get which mode, in order, apart from those that it skips. What the tool finds wrong with a
profile only when it is chosen (pkg/config_manager/configmanager.go) is no error of the file: choosing it fails.
"""

from itertools import islice
from typing import Annotated

from pydantic import Field

from ...core.partitions.choice import NamedLayout, Parts
from ...core.partitions.geometry import LayoutError, layout
from ..report import ProblemReport
from ..schema.scalars import Text, Whole, between
from ..schema.section import Section
from .subject import Subject

KEY = "gpu-config-profiles"
"""The key that tells this form from mig-parted's."""

Index = Annotated[Whole, between(0)]


class Mode(Section):
    """The mode of some GPUs."""

    compute_partition: Text = ""
    """Compute partitioning: SPX, DPX, QPX or CPX."""
    memory_partition: Text = ""
    """Memory partitioning: NPS1, NPS2 or NPS4, the same for the whole profile."""
    num_gpus_assigned: Annotated[Index, Field(alias="numGPUsAssigned")] = 0
    """How many GPUs get it."""

    @property
    def name(self) -> str:
        """As ROCm's plugin names it, such as cpx_nps1."""
        return f"{self.compute_partition}_{self.memory_partition}".lower()


class Skipped(Section):
    """GPUs that stay as they are."""

    ids: list[Index] = []
    """Their indices."""


class Profile(Section):
    """The modes of a node's GPUs."""

    skipped_gpus: Annotated[Skipped, Field(alias="skippedGPUs")] = Skipped()
    """GPUs that stay as they are."""
    profiles: list[Mode] = []
    """Modes, and how many of the other GPUs get each, in order."""

    def layout(self, subject: Subject) -> NamedLayout:
        """What it makes of these devices, checked in the order in which the tool does it."""
        skipped = set(self.skipped_gpus.ids)
        if beyond := [each for each in sorted(skipped) if each >= subject.count]:
            return _refused(f"it skips GPU {beyond[0]}, and there are {subject.count}")
        assigned = sum(each.num_gpus_assigned for each in self.profiles)
        if assigned + len(self.skipped_gpus.ids) != subject.count:
            skips = f" and skips {len(skipped)}" if skipped else ""
            return _refused(f"it assigns {assigned} GPUs{skips}, and there are {subject.count}")
        if len({each.memory_partition for each in self.profiles}) > 1:
            return _refused("it mixes memory modes, and all GPUs of a node have the same")
        try:
            modes = [layout(subject.geometry, each.name) for each in self.profiles]
        except LayoutError as unknown:
            return _refused(str(unknown))
        free = (index for index in range(subject.count) if index not in skipped)
        parts: dict[int, Parts] = {}
        for each, mode in zip(self.profiles, modes, strict=True):
            parts |= dict.fromkeys(islice(free, each.num_gpus_assigned), mode)
        return NamedLayout(parts, subject.refusal(parts.values()))


class Services(Section):
    """Services of the host."""

    names: list[Text] = []
    """Their names."""


class File(Section):
    """device-config-manager's `config.json`."""

    profiles: Annotated[dict[str, Profile], Field(alias=KEY)]
    """Profiles by name."""
    gpu_client_systemd_services: Services = Services()
    """Services that the tool stops meanwhile; there are none that virtual devices would keep."""

    def check(self, report: ProblemReport) -> None:
        """Nothing more: it is taken as the tool takes it."""

    def layouts(self, subject: Subject) -> dict[str, NamedLayout]:
        """What each profile makes of these devices."""
        return {name: profile.layout(subject) for name, profile in self.profiles.items()}


def _refused(why: str) -> NamedLayout:
    return NamedLayout({}, why)
