"""Simulated worlds: the agent and the embedded kubelet in one thread, on virtual time, from one seed.

    python -m vdev.worlds --seed 7

`machine.memory_transport` stands in for gRPC. See docs/worlds.md.
"""
