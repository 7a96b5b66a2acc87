"""Work beside the event loop: blocking calls in threads, programs in sessions of their own, a clock to
wait by, and pauses between attempts.

Nothing here knows devices, files of the host, or the kubelet.
"""
