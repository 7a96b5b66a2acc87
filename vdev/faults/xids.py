"""Xids: the errors that NVIDIA's driver reports of devices."""

from collections.abc import Mapping

TEXTS: Mapping[int, str] = {
    8: "GPU stopped processing",
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    32: "Invalid or corrupted push buffer stream",
    43: "GPU stopped processing",
    45: "Preemptive cleanup, due to previous errors",
    46: "GPU stopped processing",
    48: "Double Bit ECC Error",
    54: "Auxiliary power is not connected to the GPU board",
    61: "Internal micro-controller breakpoint",
    62: "Internal micro-controller halt",
    63: "GPU memory remapping event",
    64: "GPU memory remapping failure",
    68: "NVDEC0 Exception",
    69: "Graphics Engine class error",
    74: "NVLINK Error",
    78: "vGPU Start Error",
    79: "GPU has fallen off the bus",
    92: "High single-bit ECC error rate",
    94: "Contained memory error",
    95: "Uncontained memory error",
    109: "Context Switch Timeout Error",
    110: "Security Fault Error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
    121: "C2C Error",
    136: "Link Training Failed",
    137: "NVLink Privilege Error",
    140: "ECC Unrecovered Error",
    143: "GPU Initialization Error",
    154: "GPU Recovery Action Changed",
    155: "NVLINK: SW Defined Error",
    156: "Resource Retirement Event",
    158: "GPU Fatal Timeout",
}

APPLICATION_ERRORS = frozenset({13, 31, 43, 45, 68, 109})
"""Xids of programs, not of devices. NVIDIA's device plugin leaves the device Healthy."""

MAX_XID = 999
"""The largest Xid in a rule. The catalog ends at 172 and grows."""


def described(number: int) -> str:
    """The number and its meaning, such as `Xid 79: GPU has fallen off the bus`."""
    text = TEXTS.get(number)
    return f"Xid {number}: {text}" if text else f"Xid {number}"
