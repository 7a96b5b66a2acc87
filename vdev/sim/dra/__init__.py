"""DRA in the embedded kubelet, and the parts of a cluster that DRA needs.

The kubelet's part starts with `dynamic_resources`, which prepares claims; `driver_registry` talks to drivers.
`allocator` chooses devices for the scheduler, which is `kubelet.pod_scheduler`. Nothing here starts pods; they are
known by UID.
"""
