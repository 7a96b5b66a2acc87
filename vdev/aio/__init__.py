"""Work beside the event loop: blocking calls in threads, programs in sessions of their own, and a clock to wait by.

Nothing here knows devices, files of the host, or the kubelet.
"""
