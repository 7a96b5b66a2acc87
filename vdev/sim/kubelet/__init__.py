"""The kubelet as a whole: its life, its pods, the node status, and its sockets.

Start with `kubelet`. `kubelet_process` is one life of the process, and `pod_workers` is its work on pods.
"""
