"""Devices found by what sysfs says of them, which is where USB devices are found too."""
