"""The driver's side of Dynamic Resource Allocation on a node: what the kubelet calls, and what is remembered of it.

    registration   the kubelet finds the driver               driver      the life of one driver, its two sockets
    servicer       prepare, unprepare, health, on one socket  claims      what is done for a claim, one after the other
    health_stream  the health of all devices, repeated        checkpoint  the claims that are prepared
    claim_status   conditions in a claim's status.devices     claim_files CDI specifications of claims

What a claim gets is decided in `core.claims`. ResourceSlices are no business of this package.
"""
