"""What devices show, under the names that makers' exporters have for it, in Prometheus' text format.

dcgm    NVIDIA's devices, as dcgm-exporter writes them
amd     AMD's devices, as AMD's device-metrics-exporter does
plain   all others, as vdev_device_...
page    those of one node or of many, put together
"""
