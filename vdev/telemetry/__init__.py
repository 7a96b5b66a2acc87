"""Simulated sensors of devices, and their exporters and tools.

simulation  one device: its load, and the sensors that follow
sensors     all devices of a node, with the pods that load them
exporters   the metrics of the vendors' exporters, for Prometheus
nvidia_tool, amd_tool   the data for nvidia-smi and amd-smi in containers
tool_data, tool_files   which devices have a tool, the scripts, and the files on the node
applier     connects these modules with the agent
"""
