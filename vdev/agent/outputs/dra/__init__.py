"""What Dynamic Resource Allocation sees of the node's devices: ResourceSlices, and drivers that prepare claims."""
