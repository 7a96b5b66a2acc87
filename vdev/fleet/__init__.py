"""Nodes without a kubelet: one process that makes the devices of many nodes exist in the API server.

    files ─► Spec ─┬─ made_nodes   the Nodes that the file makes
                   └─ members ─► World ─► decide ─► Plan ─► the agent's own outputs for labels, status, Events, slices
    API server ─► cluster (one watch per kind) ─┘                        │
                                                 writers: what has news is written, a few at a time

What is decided for a node, and how it is written, is what an agent on that node would decide and write.
"""

from .controller import AT_ONCE, Fleet, Options

__all__ = ["AT_ONCE", "Fleet", "Options"]
