"""The kubelet's device manager: registrations, device lists, and the allocation of devices to containers.

`device_table` has its state, without I/O. `registration_server` has the connections to plugins.
`device_allocation` chooses devices and calls Allocate.
"""
