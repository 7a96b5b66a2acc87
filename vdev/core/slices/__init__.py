"""What ResourceSlices say of a node's devices, for Dynamic Resource Allocation.

published    the values: pools of devices, with attributes, capacity, counters and taints
attributes   values with their types, the standard attributes, and those of the file
nvidia amd plain    what one maker's driver publishes of a device, and what is published of all others
shares       devices that several claims may have at the same time
described    all of that together, for each driver
taints       what a device that fails says to the scheduler
pools        the pools of a node, with health, and with what only claims keep
cutting      pools as objects of resource.k8s.io/v1
publishing   what must be written so that these are what the API server has
classes      the DeviceClasses that go with the drivers of a file
spoilt       what a driver with a fault writes instead
"""
