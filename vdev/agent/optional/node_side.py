"""The node's side of the API server, put together: the connection, what is seen of the Node, and what is written.

It is imported and made when something asks for it (see `node_api`).
"""

import functools
from collections.abc import Callable
from typing import Any

from ...core.node.situation import Situation
from ...kube import Api
from ..inputs.node_object import NodeObject
from ..options import Options
from ..outputs.base import Output
from ..outputs.node.api_output import FaultRules, NodeAccess, injected
from ..outputs.node.features_file import FeaturesFile
from ..outputs.node.node_events import NodeEvents
from ..outputs.node.node_labels import NodeLabels
from ..outputs.node.node_status import NodeStatus


class NodeSide:
    """Everything that one agent has to do with its Node. No server is asked before an output has a use for it.

    `situation` is what the agent knows of itself beside the plan, `faults` answers in the server's place;
    `hurry` ends the pauses of what failed while the server was not heard.
    """

    def __init__(
        self, options: Options, situation: Callable[[], Situation], faults: FaultRules, hurry: Callable[[], None]
    ) -> None:
        node, timing = options.node, options.timing
        server = options.api_server
        fault = functools.partial(injected, faults)
        self.api = Api(server, timing=timing, fault=fault) if server else None
        self.object = NodeObject(node, self.api, timing=timing, on_heard=hurry)
        access = NodeAccess(node=node, api=self.api, view=self.object, timing=timing)
        self.labels = NodeLabels(access)
        self.features = FeaturesFile(options.features_dir)
        self.status = NodeStatus(access)
        self.events = NodeEvents(access, situation)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What follows from a plan."""
        return (self.labels, self.features, self.status, self.events)

    def break_watches(self) -> None:
        """End the open watches: a fault rule that concerns them begins."""
        if self.api is not None:
            self.api.break_watches()

    async def aclose(self) -> None:
        """End the connection."""
        if self.api is not None:
            await self.api.aclose()

    def document(self) -> dict[str, Any]:
        """The part of the status about it, without the server."""
        trouble = self.object.trouble
        return {
            "problem": str(trouble) if trouble and self.object.is_used else "",
            "labels": self.labels.document(),
            "features": {"file": str(self.features.path) if self.features.directories else None},
            "status": self.status.document(),
            "events": {"written": self.events.said, "dropped": self.events.dropped},
        }
