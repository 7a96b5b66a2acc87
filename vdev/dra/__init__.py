"""Dynamic Resource Allocation: what a node publishes, and what claims get.

attributes, published_devices   devices as ResourceSlices have them, with taints and counters
slices, slice_applier            pools cut into slices, and published
driver, places                  the life of a driver, and where its sockets and files are
servicer                        what a kubelet calls on these sockets
claims, preparation             what is done for a claim, and what it gets
checkpoint                      which claims are prepared, and their CDI files
applier                          what connects all of it with the agent
"""
