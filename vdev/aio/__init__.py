"""Helpers for asyncio: blocking calls in threads, programs in sessions of their own, the clock, and back-off.

Nothing here knows devices, files of the host, or the kubelet.
"""
