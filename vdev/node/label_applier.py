"""Writes labels to the Node object (`NodeLabels`) or to Node Feature Discovery's file (`FeaturesFile`).

Labels are written by a server-side apply without force. A label that another field manager keeps at another value is
not changed; the others are written. All stay when the agent ends, because a restart must not make pods unschedulable.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from ..agent.applier import Applier
from ..hostfs.files import write_if_changed
from ..kube.objects import metadata_of
from ..model.problem import Problem, warning
from ..planning.plan import DesiredState
from ..planning.repartition import RepartitionState
from .api_applier import ApiApplier, NodeAccess
from .ownership import owned, owned_by_others

log = structlog.get_logger(__name__)


class NodeLabels(ApiApplier):
    name = "updating the node's labels"

    def __init__(self, access: NodeAccess) -> None:
        super().__init__(access)
        self.written: Mapping[str, str] = {}  # the labels that the Node has from vdev
        self.kept_by: Mapping[str, str] = {}  # by label, the manager that keeps it at another value
        self._wanted: Mapping[str, str] = {}

    async def apply(self, plan: DesiredState) -> None:
        """Take the plan's labels; at first also if there are none, because an earlier process may have left some."""
        choices = plan.observed.layouts.values()
        follows = bool(choices) and all(each.state is not RepartitionState.UNSEEN for each in choices)
        is_asked = plan.observed.spec.node.labels is True or follows or self._access.takes_back
        if plan.labels != self._wanted or (is_asked and not self._follows):
            self._wanted = plan.labels
            self._note(wants=bool(plan.labels))

    def _is_undone(self, document: Mapping[str, Any]) -> bool:
        free, _ = self._free(document)
        return self.written == free and not _has(document, free)

    async def _write(self, document: Mapping[str, Any]) -> None:
        free, kept_by = self._free(document)
        if not _has(document, free):
            # This raises Conflict if another manager has taken a label since the Node was read; it is then retried.
            await self._apply(document, {"metadata": {"labels": free} if free else {}})
            log.log(self._access.level, "node labels written", labels=len(free))
        for label, manager in kept_by.items():
            if self.kept_by.get(label) != manager:
                log.warning("node label belongs to another field manager", label=label, manager=manager)
        self.kept_by, self.written = kept_by, free

    def _free(self, document: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The wanted labels that no other manager keeps at another value; and for the rest, the manager by label."""
        wanted, labels = self._wanted, metadata_of(document).get("labels") or {}
        owners = owned_by_others(document, "metadata", "labels")
        kept_by = {label: owners[label] for label in wanted if label in owners and labels.get(label) != wanted[label]}
        return {label: value for label, value in wanted.items() if label not in kept_by}, kept_by

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Warnings about labels that others keep at another value."""
        return tuple(
            warning(
                f"node {self._access.node}",
                f"the label {label} belongs to {manager}, which keeps it at another value",
                "stop the other program from writing it, or leave the label out of the configuration",
            )
            for label, manager in self.kept_by.items()
        )

    def document(self) -> dict[str, Any]:
        """For the status: the labels that are wanted, written, and kept by others."""
        return {"wanted": dict(self._wanted), "written": dict(self.written), "keptBy": dict(self.kept_by)}


def _has(document: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Whether the Node has these labels, and no others from vdev."""
    labels = metadata_of(document).get("labels") or {}
    return owned(document, "metadata", "labels") == wanted.keys() and wanted.items() <= labels.items()


FILE = "vdev"


class FeaturesFile(Applier):
    """Keeps `<directory>/vdev`; it is removed when labels no longer go there, and stays when the agent ends."""

    name = "writing the features file"

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._wanted: Mapping[str, str] | None = None  # None: a file was never wanted

    async def apply(self, plan: DesiredState) -> None:
        """Write the labels if the file has other ones or does not exist. Raises HostError."""
        if plan.features is None and self._wanted is None:
            return
        await asyncio.to_thread(self._write, plan.features)
        self._wanted = plan.features
        self.directories = frozenset() if self._wanted is None else frozenset({self.path.parent})

    def _write(self, wanted: Mapping[str, str] | None) -> None:
        if wanted is None:
            self.path.unlink(missing_ok=True)
            return
        text = "".join(f"{label}={value}\n" for label, value in sorted(wanted.items())).encode()
        if write_if_changed(self.path, text):
            log.info("features file written", file=str(self.path), labels=len(wanted))
