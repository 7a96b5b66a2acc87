"""Simulated worlds: the agent and the embedded kubelet in one thread, on virtual time, from one seed.

    python -m tests.worlds --seed 7

See docs/developers/worlds.md.
"""
