"""DRA in the embedded kubelet, and the parts of a cluster that DRA needs.

The kubelet's part starts with `dynamic_resources`: `driver_registry` and `driver_client` talk to drivers, and
`claim_manager` prepares claims. The cluster's part starts with `control_plane`: it creates claims from templates, and
`allocator` chooses their devices. Neither starts pods; they know pods by UID.
"""
