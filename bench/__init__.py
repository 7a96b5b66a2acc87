"""The benchmark: how fast and how small the plugin is, measured from the kubelet's side of its sockets.

`python -m bench` measures rows (see `rows`), each against an empty gRPC server of the same Python in the same run, and
prints them beside their budgets. `python -m bench.growth` draws how cost grows with devices and resources.
`python -m bench.memory` tells where the memory goes, and `python -m bench.counts` keeps the hot paths' instruction
counts from growing unseen.

Nothing here is part of the plugin, and no test asserts a duration.
"""
