"""Dynamic Resource Allocation: the devices that a node publishes, and the claims that get them.

published_devices, attributes   devices as in ResourceSlices, with taints and counters
nvidia_devices, amd_devices     the same in the style of these vendors' drivers
pools                           the devices of each driver, and lost devices that claims still use
slices, slice_applier           divide pools into slices and publish them
driver                          the life cycle of a driver and its socket
servicer                        the gRPC services that the kubelet calls on this socket
claims, preparation             prepare claims, with a CDI specification for each
checkpoint                      the paths of a driver's files, the record of prepared claims, and their CDI files
applier                         connects these modules with the agent
"""
