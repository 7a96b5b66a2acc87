"""The plugin's side of the kubelet's sockets: one gRPC server per resource, registration, and the PodResources client.

Nothing here chooses devices: `core` decides, `encode` translates, `agent` connects the parts.
"""
