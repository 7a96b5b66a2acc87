"""Dynamic Resource Allocation: the devices that a node publishes, and the claims that get them.

published_devices, attributes   devices as ResourceSlices have them, with taints and counters
nvidia_devices, amd_devices     the same in the style of these makers' drivers
pools                           all devices of a driver, and those that only claims keep
slices, slice_applier           pools cut into slices, and published
driver                          the life of a driver
servicer                        the calls of a kubelet on these sockets
claims, preparation             preparing claims, and what each claim gets
checkpoint                      the places of its files, the record of prepared claims, and their CDI files
applier                         connects all of it with the agent
"""
