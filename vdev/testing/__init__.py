"""The types of the fixtures of `vdev.pytest_plugin`, for annotations and for your own fixtures.

In a plain test, their methods block. In an async test, methods that take time are awaited, so annotate a
`BlockingKubelet` as `vdev.sim.Kubelet` there, and a `BlockingAgent` as `Agent`.
"""

from .agent import Agent, BlockingAgent
from .kubelet import BlockingKubelet
from .loop_thread import LoopThread

__all__ = ["Agent", "BlockingAgent", "BlockingKubelet", "LoopThread"]
