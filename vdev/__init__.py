"""vdev: a kubelet device plugin that advertises any device a YAML file declares."""

__version__ = "0.1.0"
