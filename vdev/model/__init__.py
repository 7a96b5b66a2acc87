"""The values that everything works with: devices, names, quantities, the specification that a file becomes. Pure."""
