"""A node's devices as a vdev file that plays them elsewhere: what the kubelet lists, with what sysfs knows of it.

hardware   what is plugged in           anonymous  other names for what nobody should see
document   both to the text of a file
"""

from .anonymous import Mask
from .document import Recording, recorded
from .plugged_hardware import HardwarePiece, pieces

__all__ = ["HardwarePiece", "Mask", "Recording", "pieces", "recorded"]
