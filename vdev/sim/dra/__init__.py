"""The DRA half of the kubelet, and what a cluster does around it: controllers and the scheduler's allocator.

`plugin_watcher`, `driver_registry` and `driver_client` are the two sockets of a driver. `claim_manager` prepares
claims, `cluster` makes and allocates them. It knows pods by UID and starts none.
"""
