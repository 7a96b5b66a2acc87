"""The plugin's side of the kubelet's sockets: one gRPC server per resource, registration, and the PodResources client.

Nothing here chooses devices: `planning` decides, `servicer` translates, `agent` connects the parts.
"""
