"""What is known of a raw device before it is cut or shared, by placeholder name."""

from .device import RawDevice


def facts(device: RawDevice, resource: str) -> dict[str, str]:
    """What `{placeholders}` stand for in the paths and commands that concern a raw device as a whole."""
    return {
        "id": device.id,
        "index": str(device.index),
        "name": device.entry,
        "resource": resource,
        "numa": ",".join(str(node) for node in device.numa),
        "memory.mib": str(device.memory // 2**20),
        "memory.bytes": str(device.memory),
        "path": device.paths[0] if device.paths else "",
        **{f"attributes.{key}": value for key, value in device.attributes.items()},
    }
