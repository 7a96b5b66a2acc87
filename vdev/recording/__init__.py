"""A node's devices as a vdev file that plays them elsewhere: what the kubelet lists, with what sysfs knows of it.

hardware   what is plugged in           anonymous  other names for what nobody should see
document   both to the text of a file
"""

from .document import HardwarePiece, Mask, Recording, pieces, recorded

__all__ = ["HardwarePiece", "Mask", "Recording", "pieces", "recorded"]
