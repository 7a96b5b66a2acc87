"""Values and formats that the rest of `sim` uses: pods, container edits, quantities and YAML."""
