"""Dynamic Resource Allocation: what a node publishes, and what claims get.

attributes, published_devices   devices as ResourceSlices have them, with taints and counters
slices, slice_output            pools cut into slices, and published
driver, servicer                the driver's two sockets; prepare, unprepare and health
claims, preparation             what is done for a claim, and what it gets; `claim_files` keeps record and CDI files
output                          what connects all of it with the agent
"""
