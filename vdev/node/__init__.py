"""What vdev writes about a Node: labels, conditions and capacity in its status, and Events.

`labels`, `conditions`, `losses` and `events` decide and are pure. Modules named `…_applier` write to the API server,
or to a file for Node Feature Discovery. `cleaning` removes what they wrote.
"""
