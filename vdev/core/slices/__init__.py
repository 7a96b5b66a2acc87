"""What ResourceSlices say of a node's devices, for Dynamic Resource Allocation.

`devices` has what a driver publishes of each device, `pools` those of a node with their health and with what only
claims keep, `objects` what the API server is to have of them.
"""
