"""DRA in the embedded kubelet, and the parts of a cluster that DRA needs.

The kubelet's part starts with `dynamic_resources`, which prepares claims; `driver_registry` and `driver_client` talk to
drivers. The cluster's part starts with `control_plane`, which creates claims from templates; `allocator` chooses their
devices. Neither starts pods; they know pods by UID.
"""
