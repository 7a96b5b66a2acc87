"""What is written about a Node: labels, status with conditions and capacity, and Events.

`labels`, `conditions` and `events` decide and are pure. Modules named `…_output` write to the API server, or to a file
for Node Feature Discovery.
"""
