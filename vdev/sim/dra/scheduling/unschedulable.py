"""Why a pod gets no devices, as the scheduler tells it."""


class UnschedulableError(Exception):
    """No allocation on this node. The text is the scheduler's."""

    reason = "Unschedulable"

    @property
    def message(self) -> str:
        """What the condition of the pod and its Event say."""
        return f"0/1 nodes are available: 1 {self}."


class NowhereError(UnschedulableError):
    """No allocation on any node: said before a node was looked at, so that none is counted."""

    @property
    def message(self) -> str:
        """What the condition of the pod and its Event say."""
        return f"0/1 nodes are available: {self}."


class SchedulerError(UnschedulableError):
    """Something is wrong with the claim or its class: the scheduler gives up, and looks at no other node."""

    reason = "SchedulerError"

    @property
    def message(self) -> str:
        """What the condition of the pod and its Event say."""
        return f'running "DynamicResources" filter plugin: {self}'
