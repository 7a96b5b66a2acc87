"""What the fixtures of `vdev.pytest_plugin` are, for annotations and for fixtures of your own.

In a plain test their methods block. In an async test, whatever runs it, those that take time are awaited: there a
`BlockingKubelet` is used as a `vdev.sim.Kubelet` is, and a `BlockingAgent` as an `Agent`; annotate them so.
"""

from .agent import Agent, BlockingAgent
from .kubelet import BlockingKubelet
from .loop_thread import LoopThread

__all__ = ["Agent", "BlockingAgent", "BlockingKubelet", "LoopThread"]
