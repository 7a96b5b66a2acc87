"""Nodes without a kubelet: one controller writes the devices of many nodes to the API server.

    files ─► Spec ─┬─ made_nodes   the Nodes that the file makes
                   └─ members ─► ObservedState ─► plan ─► DesiredState ─► the appliers of `node` and `dra`
    API server ─► cluster (one watch per kind) ─┘                       │
                                                a task for each applier of each node, with the agent's retries

A node is planned and written in the same way as by an agent on that node.
"""
