"""Nodes without a kubelet: one process that makes the devices of many nodes exist in the API server.

    files ─► Spec ─┬─ made_nodes   the Nodes that the file makes
                   └─ members ─► ObservedState ─► decide ─► DesiredState ─► the outputs of `node` and `dra`
    API server ─► cluster (one watch per kind) ─┘                        │
                                                 writers: what has news is written, a few at a time

What is decided for a node, and how it is written, is what an agent on that node would decide and write.
"""
