"""Sensors of devices: what loads them, what they show, and who reads it.

simulation  the values of one device, brought up to date at each look
sensors     the devices of a node, with the pods that load them
dcgm, amd   the names and labels of the makers' exporters; `page` writes them for Prometheus
tool_data   what nvidia-smi and amd-smi show in containers; `tool_files` writes it there
output      what connects all of it with the agent
"""
