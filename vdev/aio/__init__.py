"""Helpers for asyncio: blocking calls in threads, programs in their own sessions, the clock, and back-off.

This package knows nothing about devices, the host's files or the kubelet.
"""
