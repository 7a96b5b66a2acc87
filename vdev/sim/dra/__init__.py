"""The DRA half of the kubelet, and what a cluster does around it.

The kubelet's half begins with `dynamic_resources`: `driver_registry` and `driver_client` talk to drivers,
`claim_manager` prepares claims. The cluster's half begins with `control_plane`: it makes claims from templates,
and `allocator` chooses devices for them. Pods are known by UID, and none is started here.
"""
