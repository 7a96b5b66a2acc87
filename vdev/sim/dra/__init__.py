"""The DRA half of the kubelet, and what a cluster does around it: controllers and the scheduler's allocator.

`drivers` has the two sockets of each driver. `claim_manager` prepares claims, `scheduling` makes and allocates them. It
knows pods by UID and starts none.
"""
