"""The objects of the API server: ResourceSlices made of pools, what must be written of them, and DeviceClasses."""
