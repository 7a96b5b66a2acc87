"""Sensors of devices: what loads them, what they show, and who reads it.

simulation  the values of one device, brought up to date at each look
sensors     the devices of a node, with the pods that load them
dcgm, amd   the names and labels of the makers' exporters; `page` writes them for Prometheus
tool_data   the devices with nvidia-smi or amd-smi in containers; `tool_files` writes what these show
nvidia_tool, amd_tool   what that is: values, and texts that the scripts in `smi` pick from
applier      what connects all of it with the agent
"""
