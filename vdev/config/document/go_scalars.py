"""Unquoted scalars as NVIDIA's plugin takes them: by the rules of YAML 1.1 in Go, by way of JSON.

`yes` and `on` are booleans there, `0x10`, `010` and `1_000` are whole numbers, and so is `2.0`, which JSON writes as 2.
Facts: go.yaml.in/yaml v2.4.3, `resolve.go`; sigs.k8s.io/yaml v1.6.0, through which NVIDIA/k8s-device-plugin v0.20.0
reads its file.
"""

import re

MIG_PARTED = frozenset({"version", "mig-configs"})
"""What a file of NVIDIA's mig-parted has, which reads it by the same package."""

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]{1,16})|0[bB]([01]{1,64})|0[oO]?([0-7]{1,22})|(0|[1-9][0-9]{0,19}))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_LONGEST = 64
_MOST = 1e21  # from here on JSON writes an exponent, which is no whole number to Go


def number_or_boolean(text: str) -> str | None:
    """The scalar as JSON has it, or None for a text and for what vdev reads alike."""
    if text in _TRUE:
        return "true"
    if text in _FALSE:
        return "false"
    digits = text.replace("_", "")
    if len(text) > _LONGEST or text[:1] not in "+-.0123456789":
        return None
    if found := _WHOLE.fullmatch(digits):
        value = next(int(part, base) for part, base in zip(found.groups()[1:], _BASES, strict=True) if part)
        return str(-value if found[1] == "-" else value)
    if _FLOAT.fullmatch(digits) and (real := float(digits)).is_integer() and abs(real) < _MOST:
        return str(int(real))
    return None
