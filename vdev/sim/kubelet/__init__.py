"""The kubelet as a whole: its start and end, the pods it runs, the node status it shows, the sockets it serves.

Start with `kubelet`. `kubelet_process` is one life of the process, `pod_workers` what it does with a pod.
"""
