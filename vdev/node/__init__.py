"""The data that vdev writes about a Node: labels, conditions and capacity in its status, and Events.

`labels`, `conditions` and `events` are pure and compute the data. Modules named `…_applier` write it to the API server,
or to a file for Node Feature Discovery. `ownership` removes it.
"""
