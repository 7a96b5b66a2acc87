"""What others see of a running vdev: logs, metrics, and the HTTP side. Nothing here decides anything."""
