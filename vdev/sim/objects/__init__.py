"""Values and formats that the rest of `sim` uses: pods, devices, container edits, quantities, names, YAML."""
