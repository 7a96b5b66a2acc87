"""The label of this agent's node, for the choice of a file. What is wrong with it is said once.

Without a service account, or without the permission, the node counts as unlabelled.
"""

from collections.abc import Callable

import structlog

from .node_object import NodeObject

log = structlog.get_logger(__name__)


class NodeLabel:
    """Of several labels the first that the node has: `key`, and its last known `value`, empty for none.

    `answered`: the value was told, or it is certain that nobody will tell it.
    """

    def __init__(self, node: NodeObject, *labels: str) -> None:
        self.value = ""
        self.key = labels[0]
        self.trouble = ""
        self.answered = False
        self._node = node
        self._labels = labels

    async def read(self) -> bool:
        """Ask the API server; True when the value is another one now. What may pass leaves the last known value."""
        await self._node.read()
        return self._take()

    def use(self, on_change: Callable[[], object]) -> None:
        """Follow the label, and call this when it is another one, or known for the first time."""

        def look() -> None:
            if self._take():
                on_change()

        self._node.subscribe(look)

    def _take(self) -> bool:
        given = {key: value for key in self._labels if (value := self._node.labels.get(key))}
        key, value = next(iter(given.items()), (self._labels[0], ""))
        trouble = str(self._node.trouble or "")
        if trouble and trouble != self.trouble:
            write = log.warning if self._node.has_server else log.info  # nobody meant a label where there is no account
            write("node label not readable; choosing by the node's name", label=key, reason=trouble)
        elif self.trouble and not trouble:
            log.info("node label readable again", label=key, value=value)
        is_first = not self.answered and not self._node.unanswered
        changed = is_first or (key, value) != (self.key, self.value)
        self.key, self.value, self.trouble = key, value, trouble
        self.answered = self.answered or is_first
        return changed
