"""The node's side of the API server, put together: the connection, what is seen of the Node, and what is written.

Nothing is asked, nor the library imported that asks, before a plan says something of the node, or labels choose a file
or a layout.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..core.node.situation import Situation
from ..kube import Api
from .inputs.node_object import NodeObject
from .options import Options
from .outputs.base import Output
from .outputs.node.api_output import FaultRules, NodeAccess, injected
from .outputs.node.features_file import FeaturesFile
from .outputs.node.node_events import NodeEvents
from .outputs.node.node_labels import NodeLabels
from .outputs.node.node_status import NodeStatus

_LIMIT = 16 * 2**20  # bytes of an answer: all is about one node, and in memory it is five times as much


class NodeApi:
    """Everything that one agent has to do with its Node.

    `object` is the Node as the API server has it, and `access` the way to it.

    `situation` is what the agent knows of itself beside the plan, `faults` answers in the server's place;
    `hurry` ends the pauses of what failed while the server was not heard.
    """

    def __init__(
        self, options: Options, situation: Callable[[], Situation], faults: FaultRules, hurry: Callable[[], None]
    ) -> None:
        node, timing, server = options.node, options.timing, options.api_server
        fault = functools.partial(injected, faults)
        self.api = Api(server, timing=timing, fault=fault, limit=_LIMIT) if server else None
        self.object = NodeObject(node, self.api, timing=timing, on_heard=hurry)
        self.access = access = NodeAccess(node=node, api=self.api, view=self.object, timing=timing)
        self._labels = NodeLabels(access)
        self._features = FeaturesFile(options.features_dir)
        self._status = NodeStatus(access)
        self._events = NodeEvents(access, situation)
        self._server = server.where if server else ""

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (self._labels, self._features, self._status, self._events)

    @property
    def turns(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Steps to repeat, in tasks of their own.

        None has an output's name: what an output notes succeeds at every turn, which says nothing of what is written.
        """
        return {
            "writing the node's labels": self._labels.work,
            "writing the node's status": self._status.work,
            "writing events": self._events.work,
        }

    def break_watches(self) -> None:
        """End the open watches: a fault rule that concerns them begins."""
        if self.api is not None:
            self.api.break_watches()

    async def aclose(self) -> None:
        if self.api is not None:
            await self.api.aclose()

    def document(self) -> dict[str, Any]:
        """The part of the status about it; keys are stable and documented."""
        trouble, labels, status = self.object.trouble, self._labels.document(), self._status.document()
        # Without a server only the choice of a file by label may have looked for the Node, which does without.
        is_asked_for = self.object.has_server or labels["wanted"] or status["capacity"] or status["conditions"]
        return {
            "apiServer": self._server,
            "problem": str(trouble) if trouble and self.object.is_used and is_asked_for else "",
            "labels": labels,
            "features": {"file": str(self._features.path) if self._features.directories else None},
            "status": status,
            "events": {"written": self._events.said, "dropped": self._events.dropped},
        }
