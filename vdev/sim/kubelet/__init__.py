"""The kubelet as a whole: its process, its pods, the node status, and its sockets.

Start with `kubelet`. `kubelet_process` is a running kubelet process, and `pod_workers` syncs its pods.
"""
